"""Forwards a request to a service and returns its response, streamed if large. Other headers than these are dropped.

A form field that an operation does not have is refused: a service would ignore it, and its value would be lost. The
OpenAPI document says which fields an operation has. Only administrators' operations are checked: the programs of
package clients send more than they need.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from aiohttp import ClientError, hdrs, web
from multidict import CIMultiDict

from common.auth.internal_tokens import Caller
from common.concurrency.limits import FairConcurrencyLimit
from common.errors import InvalidField, InvalidRequest, Problem
from common.http.bodies import FORM_LIMIT
from common.http.forms import field_names
from common.http.middleware import AUDIT_HEADER, BytesResponse
from common.http.zero_copy.request_bodies import CallerBody
from common.http.zero_copy.responses import detach_body, splice
from common.redis import TENANT_VERSION_HEADER
from common.service_client.client import BLOCK_TIMEOUT, SMALL, Response, ServiceClient, raise_problem
from common.telemetry import log
from gateway.auth.authenticator import TENANT_VERSION
from gateway.operations import Access, Operation, is_value
from gateway.routing import Target

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
RESPONSE_HEADERS = (
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
SPLICE_THRESHOLD = 1 << 20  # bytes. The kernel moves longer responses; the connection to the service ends with them.
SERVICES: web.AppKey[Mapping[str, ServiceClient]] = web.AppKey("services", Mapping)  # by name
LONG_FORMS = web.AppKey("long_forms", FairConcurrencyLimit)
MAX_LONG_FORMS = 16  # forms with a large logo, of at most 6 MiB each; one of a tenant
LONG_FORM_TIMEOUT = 10.0  # seconds that a form waits for its slot
CHECKED = frozenset([Access.ADMINISTRATOR, Access.SESSION])
Node = Mapping[str, Any]  # of the document
WINGET_NAME = "x-winget-name"  # the document's name for a field's counterpart in winget's manifests
SHOWN_LENGTH = 64  # characters of an unknown name
# The service's details for the audit log. The middleware would send details under the key `AUDIT` to the caller.
AUDIT_DETAILS: web.RequestKey[dict[str, Any]] = web.RequestKey("audit_details", dict)


async def forward(request: web.Request, service: ServiceClient, caller: Caller, target: Target) -> web.StreamResponse:
    """Send a request to a service, and its response to the caller. Keeps the service's `AUDIT_DETAILS` in the request.

    Raises:
        UpstreamProblem: the service answered with a problem.
        Unavailable: the service did not answer.
        InvalidRequest: the caller's body broke off or has an unknown field, or a header is not text.
        BodyTooLarge: the body is longer than the operation's limit.
        Overloaded: too many long forms are being sent.
    """
    operation = target.operation
    # The form of a client was read to identify the client. The service gets the caller, not the token.
    sends_body = request.body_exists and operation.access is not Access.CLIENT
    headers = CIMultiDict(
        (name, value)
        for name in REQUEST_HEADERS
        if sends_body or not name.startswith("Content-")
        for value in request.headers.getall(name, [])
    )
    if version := request[TENANT_VERSION]:
        headers[TENANT_VERSION_HEADER] = version
    content = CallerBody(request, None if operation.streamed else operation.body_limit)
    async with _slot_for_form(request, caller, target):
        _check_utf8(headers)
        data: CallerBody | bytes | None = None
        if sends_body:
            # A body that is read first holds no connection to the service while its sender is slow.
            data = content if operation.streamed else b"".join([block async for block in content])
            if isinstance(data, bytes):
                fields = request.app[FORM_FIELDS]
                fields.check_body(operation, request.headers.get("Content-Type", ""), data)
        try:
            async with service.open(
                caller,
                request.method,
                target.segments,
                operation=operation.name,
                query=request.rel_url.raw_query_string,
                headers=headers,
                data=data,
                timeout=operation.timeout,
                streamed=operation.streamed,
                replica_key=request.headers.get("X-File-ID", ""),
            ) as response:
                return await relay(request, response)
        except Problem:
            if content.problem:
                raise content.problem from None
            raise


def _slot_for_form(request: web.Request, caller: Caller, target: Target) -> AbstractAsyncContextManager[None]:
    """A slot for a form that may be long: the whole of it is in memory until the response."""
    length, operation = request.content_length, target.operation
    is_short = length is not None and length <= FORM_LIMIT
    if is_short or operation.streamed or operation.body_limit <= FORM_LIMIT or not request.body_exists:
        return nullcontext()
    return request.app[LONG_FORMS].acquire(caller.tenant_id, LONG_FORM_TIMEOUT)


def _check_utf8(headers: CIMultiDict[str]) -> None:
    """Raise InvalidRequest for a header with bytes that are no text: aiohttp would drop them silently."""
    try:
        "".join(headers.values()).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("A header is not UTF-8.") from None


async def relay(request: web.Request, response: Response) -> web.StreamResponse:
    """Send a service's response to the caller. Raises its problem; Unavailable for an error that is only for us."""
    if details := response.headers.get(AUDIT_HEADER):
        _keep_details(request, json.loads(details))
    if request.method != "HEAD":
        await raise_problem(response)
    headers = CIMultiDict((name, value) for name in RESPONSE_HEADERS for value in response.headers.getall(name, []))
    length = response.content_length
    if request.method != "HEAD" and length is not None and length <= SMALL:
        return BytesResponse(status=response.status, headers=headers, body=await response.read())
    return await _stream(request, response, headers)


def _keep_details(request: web.Request, details: Mapping[str, Any]) -> None:
    """Keep a service's details for the audit log, with those of the services that answered before it."""
    earlier = request.get(AUDIT_DETAILS, {"target": {}, "changes": {}})
    changes = {**earlier["changes"], **details["changes"]}
    target = {**earlier["target"], **details["target"]}
    request[AUDIT_DETAILS] = {
        "target": {name: text for name, text in target.items() if name not in changes},
        "changes": changes,
    }


async def _stream(request: web.Request, response: Response, headers: CIMultiDict[str]) -> web.StreamResponse:
    streamed = web.StreamResponse(status=response.status, headers=headers)
    try:
        await streamed.prepare(request)
        length = response.content_length
        # The kernel would send the bytes without encryption. The response to HEAD has a length, but no body.
        can_splice = not request.secure and request.method != "HEAD"
        if can_splice and length is not None and length > SPLICE_THRESHOLD and (body := detach_body(response, length)):
            for block in body.blocks:
                await streamed.write(block)
            if body.connection:
                await splice(request, body.connection, body.rest, timeout=BLOCK_TIMEOUT)
        else:
            async for block in response.content.iter_any():
                await streamed.write(block)
        await streamed.write_eof()
    except ConnectionResetError:
        pass  # The caller closed the connection.
    except (ClientError, TimeoutError, EOFError) as error:
        # The status was sent already: only a broken connection shows that the body is incomplete.
        log.error("answer_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return streamed


@dataclass(frozen=True)
class _Fields:
    """The names of an operation's fields. `nearest` has them by their squeezed names, and by those of winget."""

    names: frozenset[str]
    nearest: Mapping[str, str]


def is_checked(operation: Operation) -> bool:
    """Whether unknown fields of an operation are refused. A GET has no form, so it loses no field."""
    return operation.access in CHECKED and operation.method != hdrs.METH_GET


class FormFields:
    """The form fields of all operations."""

    def __init__(self, document: Node) -> None:
        self._document = document
        self._fields: dict[Operation, _Fields] = {}

    def check_body(self, operation: Operation, content_type: str, body: bytes) -> None:
        """Check the names of a whole form. Raises InvalidField."""
        if not is_checked(operation):
            return
        names: Iterable[str] = ()
        with suppress(InvalidRequest):  # The service decides on a body that is no form.
            names = field_names(content_type, body)
        self.check(operation, names)

    def check(self, operation: Operation, names: Iterable[str]) -> None:
        """Raise InvalidField, with the nearest name, for a name that a checked operation does not have."""
        if not is_checked(operation):
            return
        fields = self._fields_of(operation)
        for name in names:
            if name not in fields.names:
                raise _unknown(name, fields.nearest)

    def _fields_of(self, operation: Operation) -> _Fields:
        fields = self._fields.get(operation)
        if fields is None:
            described: Node = self._document["paths"][f"/{operation.path}"][operation.method.lower()]
            contents = described.get("requestBody", {"content": {}})["content"].values()
            schemas = dict(each for content in contents for each in self._properties(content["schema"]))
            winget = {schema[WINGET_NAME]: name for name, schema in schemas.items() if WINGET_NAME in schema}
            nearest = {_squeezed(alias): name for alias, name in {**winget, **{name: name for name in schemas}}.items()}
            in_address = (part.strip("{}") for part in operation.parts if is_value(part))  # A field may repeat them.
            fields = self._fields[operation] = _Fields(frozenset(schemas).union(in_address), nearest)
        return fields

    def _properties(self, schema: Node) -> Iterator[tuple[str, Node]]:
        while "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schema = self._document["components"]["schemas"][name]
        yield from schema.get("properties", {}).items()
        for part in schema.get("allOf", ()):
            yield from self._properties(part)


FORM_FIELDS = web.AppKey("form_fields", FormFields)


def _unknown(name: str, fields: Mapping[str, str]) -> InvalidField:
    shown = name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}…"
    message = "is no field of this operation"
    if matches := get_close_matches(_squeezed(name[:SHOWN_LENGTH]), fields, n=1):
        nearest = fields[matches[0]]
        message = f"{message}; did you mean {nearest}?"
        return InvalidField(shown, message, reason="unknown_field_but_similar", nearest=nearest)
    return InvalidField(shown, f"{message}; see its documentation", reason="unknown_field")


def _squeezed(name: str) -> str:
    """The same text for `package_dependencies` and `PackageDependencies`."""
    return name.casefold().replace("_", "").replace("-", "")
