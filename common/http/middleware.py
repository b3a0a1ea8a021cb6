"""How every service answers: errors as problem details, and every request a line of the log."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.typedefs import Handler, Middleware

from common.auth.callers import Caller, Kind
from common.errors import Overloaded, Problem, Unavailable, UpstreamProblem
from common.mongo import MongoError
from common.redis import RedisError
from common.telemetry import begin_request, log, request_id
from common.telemetry.request_metrics import BROKEN_OFF, OTHER, Requests

CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
# What a write was about: `target` and `changes`, as the audit log shows them.
AUDIT: web.RequestKey[dict[str, Any]] = web.RequestKey("audit", dict)
ROUTE: web.RequestKey[str] = web.RequestKey("route", str)
FAILURE: web.RequestKey[str] = web.RequestKey("failure", str)  # the class of what the answer is an error for
# How this request's problems are told, where its protocol has a form of its own for them.
ProblemRenderer = Callable[[Problem], web.Response]
PROBLEM_RENDERER: web.RequestKey[ProblemRenderer] = web.RequestKey("telling")
PLAIN_METHODS = frozenset({hdrs.METH_GET, hdrs.METH_POST, hdrs.METH_PATCH, hdrs.METH_DELETE})
# The interface means another thing by this status than HTTP does (section 7).
TITLES = {407: "Storage Exceeded"}
AUDIT_HEADER = "X-Internal-Audit"
REVISION_HEADER = (
    "X-Internal-Revision"  # of an answer that is so while its tenant's stamp stays, see `common.caching.tenant_version`
)
LISTED = 200_000  # bytes of that header that a list may take; `common.service_client.client` takes more
OPEN_PATHS = frozenset({"/livez", "/readyz"})


class BytesResponse(web.Response):
    """An answer that is all there. It says what aiohttp's own would, and leaves in half as many steps."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the whole of it, where nothing about the request is out of the ordinary."""
        body = self._body or b""
        plain = request.method in PLAIN_METHODS and request.version == HttpVersion11 and request.keep_alive
        plain = plain and not self.prepared and self.keep_alive is not False
        if not plain or not isinstance(body, bytes) or bool(body) is (self.status in {204, 304}):
            return await super().prepare(request)
        if body:
            self.headers[hdrs.CONTENT_LENGTH] = str(len(body))
            self.headers.setdefault(hdrs.CONTENT_TYPE, "application/octet-stream")
        self.headers[hdrs.DATE] = rfc822_formatted_time()
        self._keep_alive = True
        await request._prepare_hook(self)
        await request.writer.write_headers(f"HTTP/1.1 {self.status} {self.reason}", self.headers)
        await request.writer.write_eof(body)
        self._eof_sent = True
        return request.writer


def json_response(data: Any, *, status: int = 200) -> web.Response:
    """An answer of the interface."""
    return BytesResponse(body=orjson.dumps(data), status=status, content_type="application/json")


def caller_of(request: web.Request) -> Caller:
    """The caller that the gateway vouches for."""
    return request[CALLER]


def audit(
    request: web.Request, changes: Mapping[str, tuple[str, str]] | None = None, /, **target: str | Sequence[str]
) -> None:
    """Say what a write is about, for the audit log: short names and ids or lists of them, never a secret.

    Said before the write, it is there for a refused one too. `changes` has what was before and is after, by name.
    """
    request[AUDIT] = {
        "target": {name: value if isinstance(value, str) else _listed(value) for name, value in target.items()},
        "changes": changes or {},
    }


def _listed(values: Sequence[str]) -> str:
    """One text of them all; where they are longer than a header holds, of the first, and how many more there are."""
    room = LISTED
    for place, value in enumerate(values):
        room -= len(json.dumps(value))
        if room < 0:
            return f"{','.join(values[:place])} and {len(values) - place} more"
    return ",".join(values)


def problem_response(problem: Problem) -> web.Response:
    """RFC 9457 problem details, with a stable `code` and the request's id beside the standard members."""
    body = {
        "type": "about:blank",
        "title": TITLES.get(problem.status) or HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id(),
        **problem.members,
        **({"params": problem.params} if problem.params else {}),
    }
    return BytesResponse(
        body=orjson.dumps(body),
        status=problem.status,
        headers={"Content-Type": "application/problem+json", **problem.headers},
    )


def watching(requests: Requests, *, logged: bool) -> Middleware:
    """Count what is asked and how it ended, by the route: a path has ids and tokens in it, and what not else.

    It stands before all other middleware. Where requests are `logged`, each is a line of the log too.
    """

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        began, status = time.perf_counter(), 0
        requests.in_progress += 1
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            requests.in_progress -= 1
            seconds = time.perf_counter() - began
            method = request.method if request.method in hdrs.METH_ALL else OTHER
            route = request.get(ROUTE) or route_of(request)
            requests.ended(method, route, status or BROKEN_OFF, seconds)
            if logged:
                _log(request, method, route, status, seconds)

    return watch


def _log(request: web.Request, method: str, route: str, status: int, seconds: float) -> None:
    log.info(
        "request",
        method=method,
        route=route,
        status=status or "broken off",
        ms=round(seconds * 1000, 1),
        tenant_id=tenant_of(request),
    )


def tenant_of(request: web.Request) -> str:
    """The id of the tenant that a request is of, where there is such a tenant: else it is a piece of a path."""
    caller = request.get(CALLER)
    # What services ask of their own accord may be whether there is one.
    return caller.tenant_id if caller is not None and caller.kind is not Kind.SERVICE else ""


def route_of(request: web.Request) -> str:
    """The template of the route that answers, such as `/{tenant_id}/edit_client/{client_id}`; empty without one."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer whatever goes wrong, once and in one form; the outermost middleware of every service."""
    begin_request()
    response = await _answer(request, handler)
    if request.get(AUDIT) and CALLER in request and not response.prepared:
        response.headers[AUDIT_HEADER] = json.dumps(request[AUDIT])
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await _begun_once(request, handler)
    except Problem as problem:
        if problem.status >= 500 and problem.code != Overloaded.code:  # A crowd is no failure, and logging costs.
            log.error("request_failed", code=problem.code, detail=problem.detail, cause=repr(problem.__cause__))
        told = problem
    except web.HTTPException as answer:
        code = answer.reason.lower().replace(" ", "_")
        told = UpstreamProblem(answer.reason, status=answer.status, code=code)
    except (MongoError, RedisError) as error:
        log.error("store_unavailable", error=type(error).__name__, exc_info=error)
        told = Unavailable("The database does not answer; try again soon.")
    except ConnectionError:
        raise  # The caller has gone; there is nobody to answer.
    except Exception as error:  # noqa: BLE001  the last place before the caller; nothing of it is shown
        log.error("request_crashed", exc_info=error)
        told = Problem("Something went wrong here; the log has it under the request id.")
    tell: ProblemRenderer = request.get(PROBLEM_RENDERER, problem_response)
    return tell(told)


async def _begun_once(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What the handler answers. Raises ConnectionError, which ends the connection, for what fails after a beginning."""
    try:
        return await handler(request)
    except ConnectionError:
        raise
    except Exception as error:
        request[FAILURE] = type(error).__name__
        if not request.writer.output_size:
            raise
        log.error("answer_broke_off", error=type(error).__name__, exc_info=error)
        raise ConnectionError("An answer has begun; there cannot be another in it.") from error
