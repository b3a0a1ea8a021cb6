"""The middleware of every service: errors become problem details; each request is counted and logged."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.typedefs import Handler, Middleware

from common.auth.internal_tokens import INTERNAL_TOKEN, REQUEST_ID, Caller, Callers, Kind, UntrustedCaller, operation_of
from common.errors import Overloaded, Problem, Unavailable, UpstreamProblem
from common.http.aiohttp_private import send_response
from common.mongo import MongoError
from common.redis import RedisError
from common.telemetry import TRACEPARENT, begin_request, log, request_id, traces
from common.telemetry.metrics import BROKEN_OFF, OTHER, RequestMetrics
from common.tenants import Address

CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
# The `target` and the `changes` of a write, for the audit log.
AUDIT: web.RequestKey[dict[str, Any]] = web.RequestKey("audit", dict)
ROUTE: web.RequestKey[str] = web.RequestKey("route", str)
FAILURE: web.RequestKey[str] = web.RequestKey("failure", str)  # the class of the error that was answered
PROBLEM_CODE: web.RequestKey[str] = web.RequestKey("problem_code", str)
# The gateway's: the caller's address behind proxies, which is known before the caller.
CLIENT_ADDRESS: web.RequestKey[Address] = web.RequestKey("client_address")
# Renders this request's problems, if its protocol has its own form for them.
ProblemRenderer = Callable[[Problem], web.Response]
PROBLEM_RENDERER: web.RequestKey[ProblemRenderer] = web.RequestKey("problem_renderer")
PLAIN_METHODS = frozenset({hdrs.METH_GET, hdrs.METH_POST, hdrs.METH_PATCH, hdrs.METH_DELETE})
# The interface gives this status another meaning than HTTP does.
TITLES = {407: "Storage Exceeded"}
AUDIT_HEADER = "X-Internal-Audit"
REVISION_HEADER = "X-Internal-Revision"  # of a response that gateways may cache, see `common.redis`
AUDIT_LIST_LIMIT = 200_000  # bytes of a list in `AUDIT_HEADER`; `common.service_client` accepts more
OPEN_PATHS = frozenset({"/livez", "/readyz"})
PENDING: web.AppKey[Mapping[str, str]] = web.AppKey("pending")  # unfinished preparations and their progress
REQUEST_IDS = re.compile(r"[0-9a-f]{32}")


class BytesResponse(web.Response):
    """A response with a complete body: the same bytes as aiohttp's, in half as many steps."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the whole response, unless the request is unusual."""
        body = self.body or b""
        plain = request.method in PLAIN_METHODS and request.version == HttpVersion11 and request.keep_alive
        plain = plain and not self.prepared and self.keep_alive is not False
        if not plain or not isinstance(body, bytes) or bool(body) is (self.status in {204, 304}):
            return await super().prepare(request)
        if body:
            self.headers[hdrs.CONTENT_LENGTH] = str(len(body))
            self.headers.setdefault(hdrs.CONTENT_TYPE, "application/octet-stream")
        self.headers[hdrs.DATE] = rfc822_formatted_time()
        await send_response(request, self, body)
        return request.writer


def json_response(data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON response."""
    return BytesResponse(body=orjson.dumps(data), status=status, headers=headers, content_type="application/json")


def caller_of(request: web.Request) -> Caller:
    """The caller that the internal token names."""
    return request[CALLER]


def audit(
    request: web.Request, changes: Mapping[str, tuple[str, str]] | None = None, /, **target: str | Sequence[str]
) -> None:
    """Describe a write for the audit log by short names and ids, or lists of them, never by a secret.

    Call it before the write, so that refused writes are described too. `changes` has old and new values by name.
    """
    request[AUDIT] = audit_details(changes, **target)


def audit_details(
    changes: Mapping[str, tuple[str, str]] | None = None, /, **target: str | Sequence[str]
) -> dict[str, Any]:
    """The description of a write for the audit log, see `audit`."""
    return {
        "target": {name: value if isinstance(value, str) else _listed(value) for name, value in target.items()},
        "changes": changes or {},
    }


def _listed(values: Sequence[str]) -> str:
    """One text of all values, or of the first and the number of the others if a header cannot hold all."""
    room = AUDIT_LIST_LIMIT
    for index, value in enumerate(values):
        room -= len(json.dumps(value))
        if room < 0:
            return f"{','.join(values[:index])} and {len(values) - index} more"
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
    headers = {"Content-Type": "application/problem+json", **problem.headers}
    return BytesResponse(body=orjson.dumps(body), status=problem.status, headers=headers)


def observe_requests(requests: RequestMetrics, *, logged: bool) -> Middleware:
    """Count requests by route and status, and log them if `logged`. Paths are not used: they hold ids and tokens."""

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
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
            requests.observe(method, route, status or BROKEN_OFF, seconds)
            if logged:
                outcome, ms, tenant_id = status or "broken off", round(seconds * 1000, 1), tenant_of(request)
                who = _caller_and_code(request)
                log.info("request", method=method, route=route, status=outcome, ms=ms, tenant_id=tenant_id, **who)

    return observe


def tenant_of(request: web.Request) -> str:
    """The id of an existing tenant; "" while nobody has checked that the tenant of the path exists."""
    caller = request.get(CALLER)
    # A service may call with a tenant that does not exist.
    return caller.tenant_id if caller is not None and caller.kind is not Kind.SERVICE else ""


def _caller_and_code(request: web.Request) -> dict[str, str]:
    """The `client_ip`, the `client_id` and the `code` of a problem, as far as there are any, for the log."""
    caller = request.get(CALLER)
    if caller is None:
        client_ip, client_id = str(request.get(CLIENT_ADDRESS) or request.remote or ""), ""
    else:  # A service that acts by itself has no address.
        client_ip, client_id = "" if caller.kind is Kind.SERVICE else caller.ip, caller.client_id
    known = {"client_ip": client_ip, "client_id": client_id, "code": request.get(PROBLEM_CODE, "")}
    return {name: value for name, value in known.items() if value}


def route_of(request: web.Request) -> str:
    """The template of the matched route, such as `/{tenant_id}/edit_client/{client_id}`; "" for none."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into one response. It runs outside all other middleware but metrics and tracing.

    Raises ConnectionError, which ends the connection, for an error after the response began.
    """
    begin_request()
    try:
        response = await handler(request)
    except ConnectionError:
        raise  # The caller has gone.
    except Exception as error:
        request[FAILURE] = type(error).__name__
        if request.writer.output_size:
            log.error("answer_broke_off", error=type(error).__name__, exc_info=error)
            raise ConnectionError("An answer has begun; there cannot be another in it.") from error
        problem = _problem_of(error)
        request[PROBLEM_CODE] = problem.code
        response = request.get(PROBLEM_RENDERER, problem_response)(problem)
    if request.get(AUDIT) and CALLER in request and not response.prepared:
        response.headers[AUDIT_HEADER] = json.dumps(request[AUDIT])
    return response


def _problem_of(error: Exception) -> Problem:
    """The problem that the caller is told of for any error. Failures of the service are logged."""
    match error:
        case Problem():
            if error.status >= 500 and error.code != Overloaded.code:  # Overload is no failure, and logging costs.
                log.error("request_failed", code=error.code, detail=error.detail, cause=repr(error.__cause__))
            return error
        case web.HTTPException():
            return UpstreamProblem(error.reason, status=error.status, code=error.reason.lower().replace(" ", "_"))
        case MongoError() | RedisError():
            log.error("store_unavailable", error=type(error).__name__, exc_info=error)
            return Unavailable("The database does not answer; try again soon.")
        case _:  # The caller must not see it.
            log.error("request_crashed", exc_info=error)
            return Problem("Something went wrong here; the log has it under the request id.")


@web.middleware
async def only_when_ready(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests until all preparations are done."""
    if request.app[PENDING] and request.path not in OPEN_PATHS:
        raise Unavailable("The service is starting; try again soon.")
    return await handler(request)


def require_internal_token(callers: Callers, *, open_operations: frozenset[str] = frozenset()) -> Middleware:
    """Refuse requests without a token for this service, tenant and operation.

    Routes are `/{tenant_id}/<operation>…`; `open_operations` authenticate their callers themselves.
    """

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if route_of(request) in OPEN_PATHS:
            return await handler(request)
        try:
            request[CALLER] = authenticate_caller(request, callers)
        except UntrustedCaller:
            if _operation_of(request) in open_operations:
                return await handler(request)
            raise
        if REQUEST_IDS.fullmatch(caller_id := request.headers.get(REQUEST_ID, "")):
            begin_request(caller_id)
        return await handler(request)

    return authenticate


def authenticate_caller(request: web.Request, callers: Callers) -> Caller:
    """The caller that the request's token names. Raises UntrustedCaller."""
    token, tenant_id = request.headers.get(INTERNAL_TOKEN, ""), request.match_info.get("tenant_id", "")
    return callers.verify(token, operation=_operation_of(request), tenant_id=tenant_id)


def _operation_of(request: web.Request) -> str:
    # The matched route decides, not the path: `/acme%2Fdownload/claim_installer` reads as both.
    return operation_of(route_of(request).split("/")[2:])


def tracing_middlewares(callers: Callers | None = None) -> list[Middleware]:
    """Trace every request; continue the trace of a service that `callers` authenticates.

    Other senders must not control our sampling or our traces: a new trace has a link to theirs.
    """

    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in OPEN_PATHS:
            return await handler(request)
        contexts = request.headers.getall(TRACEPARENT, ())
        context = contexts[0] if len(contexts) == 1 else ""
        is_known, is_service = request.method in hdrs.METH_ALL, _is_service(request, callers)
        method = request.method if is_known else "_OTHER"
        parent, link = (context, "") if is_service else ("", context)
        with traces.request_span(method, parent=parent, link=link) as span:
            try:
                response = await handler(request)
                span.set_status(response.status, request.get(FAILURE, ""))
                return response
            finally:
                route = request.get(ROUTE) or route_of(request)
                ids = {"pkgrepo.request_id": request_id(), "pkgrepo.tenant_id": tenant_of(request)}
                span.update(f"{method if is_known else 'HTTP'} {route}".rstrip(), {"http.route": route, **ids})

    return [trace] if traces.enabled else []


def _is_service(request: web.Request, callers: Callers | None) -> bool:
    if callers is not None:
        with suppress(UntrustedCaller):
            return bool(authenticate_caller(request, callers))
    return False
