"""Streams a request on to a service and its answer back. Only headers named here travel."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from aiohttp import ClientError, ClientResponse, web
from multidict import CIMultiDict

from common.auth.callers import Caller
from common.concurrency.limits import FairConcurrencyLimit
from common.errors import InvalidRequest, Problem
from common.http.bodies import FORM_LIMIT, body
from common.http.middleware import AUDIT_HEADER, BytesResponse
from common.http.zero_copy import CAN_SPLICE, splice
from common.service_client.client import BLOCK_TIMEOUT, SMALL, Response, ServiceClient, problem_of
from common.telemetry import log
from gateway.routing.target import Target

REQUEST_HEADERS = (
    "Accept",
    "Accept-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "ContinuationToken",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
    "User-Agent",
    "Version",
    "X-File-ID",
)
ANSWER_HEADERS = (
    "Accept-Ranges",
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "ETag",
    "Last-Modified",
    "Location",
    "Retry-After",
    "Vary",
    "X-Content-Type-Options",
)
# Bytes. The system moves longer answers, and the connection to the service ends with them.
SPLICED = 1 << 20
LONG_FORMS = web.AppKey("long_forms", FairConcurrencyLimit)
LONG_FORMS_AT_ONCE = 16  # forms with a large logo, of at most 6 MiB each; one of a tenant
LONG_FORM_TIMEOUT = 10.0  # seconds that one waits for its slot
# What a service said for the audit log. No `AUDIT` of ours: that would be told to the caller.
AUDIT_DETAILS: web.RequestKey[dict[str, Any]] = web.RequestKey("about", dict)


class Body(AsyncIterator[bytes]):
    """A request body of at most `limit` bytes. `problem` is the caller's mistake that ended it."""

    def __init__(self, request: web.Request, limit: int | None = None) -> None:
        self._blocks = body(request, limit=limit, joined=False)
        self.problem: Problem | None = None

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._blocks)
        except Problem as problem:
            self.problem = problem
            raise


async def forward(
    request: web.Request, service: ServiceClient, caller: Caller, target: Target, *, with_body: bool
) -> web.StreamResponse:
    """Send a request on and its answer back; what the service says for the audit log stays with the request.

    Raises:
        Answered: the service answered with a problem.
        Unavailable: it did not answer.
        InvalidRequest: the caller's body broke off.
        BodyTooLarge: it is longer than a form may be.
        Overloaded: too many long forms are under way.
    """
    async with _slot_for_form(request, caller, target):
        return await _forward(request, service, caller, target, with_body=with_body)


def _slot_for_form(request: web.Request, caller: Caller, target: Target) -> AbstractAsyncContextManager[None]:
    """A slot for a form that may be longer than most, because the whole of it is kept in memory until the answer."""
    length, operation = request.content_length, target.operation
    is_short = length is not None and length <= FORM_LIMIT
    if is_short or operation.streamed or operation.body_limit <= FORM_LIMIT or not request.body_exists:
        return nullcontext()
    return request.app[LONG_FORMS].acquire(caller.tenant_id, LONG_FORM_TIMEOUT)


async def _forward(
    request: web.Request, service: ServiceClient, caller: Caller, target: Target, *, with_body: bool
) -> web.StreamResponse:
    sends = with_body and request.body_exists
    headers = CIMultiDict(
        (name, value)
        for name in REQUEST_HEADERS
        if sends or not name.startswith("Content-")
        for value in request.headers.getall(name, [])
    )
    _check_text(*headers.values())
    content = Body(request, None if target.operation.streamed else target.operation.body_limit)
    data: AsyncIterator[bytes] | bytes | None = None
    if sends:
        # A body that is read before holds no connection while its sender takes their time.
        data = content if target.operation.streamed else b"".join([block async for block in content])
    opened = service.open(
        caller,
        request.method,
        target.segments,
        operation=target.operation.word,
        query=request.rel_url.raw_query_string,
        headers=headers,
        data=data,
        timeout=target.operation.timeout,
        streamed=target.operation.streamed,
    )
    try:
        async with opened as response:
            return await answer(request, response)
    except Problem:
        if content.problem:
            raise content.problem from None
        raise


def _check_text(*values: str) -> None:
    """Raise InvalidRequest where what is to be sent on has bytes that are no text: aiohttp would leave them out."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("A header is not UTF-8.") from None


async def answer(request: web.Request, response: Response) -> web.StreamResponse:
    """Give a service's answer to the caller.

    Raises:
        Answered: it is a problem.
        Unavailable: it is an error that tells nothing to the caller.
    """
    if about := response.headers.get(AUDIT_HEADER):
        request[AUDIT_DETAILS] = json.loads(about)
    if response.status >= 400 and request.method != "HEAD":
        raise await problem_of(response)
    headers = CIMultiDict((name, value) for name in ANSWER_HEADERS for value in response.headers.getall(name, []))
    length = response.content_length
    if request.method != "HEAD" and length is not None and length <= SMALL:
        whole = await response.read()
        return BytesResponse(status=response.status, headers=headers, body=whole)
    return await _stream(request, response, headers)


async def _stream(request: web.Request, response: Response, headers: CIMultiDict[str]) -> web.StreamResponse:
    streamed = web.StreamResponse(status=response.status, headers=headers)
    try:
        await streamed.prepare(request)
        length = response.content_length
        if CAN_SPLICE and isinstance(response, ClientResponse) and length is not None and length > SPLICED:
            await _splice(response, streamed, request, length)
        else:
            async for block in response.content.iter_any():
                await streamed.write(block)
        await streamed.write_eof()
    except ConnectionResetError:
        pass  # The caller has gone; that is theirs to do.
    except (ClientError, TimeoutError, EOFError) as error:
        # The status is out already: a broken connection is the only way left to say that this is not all.
        log.error("answer_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return streamed


async def _splice(response: ClientResponse, streamed: web.StreamResponse, request: web.Request, length: int) -> None:
    """Give on what has come, and let the system do so with the rest; the connection to the service ends with it."""
    connection, content = response.connection, response.content
    blocks = list(iter(content.read_nowait, b""))
    if connection is not None and connection.protocol is not None:  # Else all of it came.
        connection.protocol.pause_reading()
    for block in blocks:
        await streamed.write(block)
    if left := length - content.total_bytes:
        if connection is None or connection.transport is None:
            raise EOFError
        await splice(request, connection.transport, left, timeout=BLOCK_TIMEOUT)
