"""An operation of the interface done for its caller, however the caller became known."""

from aiohttp import web

from common.auth.callers import Caller
from common.errors import InvalidRequest
from common.http.middleware import BytesResponse
from gateway import winget
from gateway.app_keys import CATALOGS, LISTINGS, RECORDER, RELEASES, SERVICES
from gateway.forwarding.one_call import one_call
from gateway.forwarding.proxy import forward
from gateway.operations import UPLOAD, Access, CacheKind
from gateway.routing.target import Target

WORKING = b'{"Message":"Its working!"}'


async def execute_operation(
    request: web.Request, caller: Caller, target: Target, stamp: str | None
) -> web.StreamResponse:
    """The operation's answer, on record where it is an administrator's.

    `stamp` is the tenant's, as Redis told it at the request's beginning. Raises the problem that the operation ends in.
    """
    if target.operation.known is CacheKind.SESSION:
        return BytesResponse(body=WORKING, content_type="application/json")
    answer = _answer(request, caller, target, stamp)
    if target.operation.access is not Access.ADMINISTRATOR:
        return await answer
    return await request.app[RECORDER].recording(request, caller, target, answer)


async def _answer(request: web.Request, caller: Caller, target: Target, stamp: str | None) -> web.StreamResponse:
    target.check_complete()
    if target.operation.known is CacheKind.SOURCE:
        return winget.information(caller.tenant)
    services = request.app[SERVICES]
    service = services[target.operation.service]
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise InvalidRequest("A compressed body is not accepted.")
    known = await _remembered(request, caller, target, stamp)
    if known is not None:
        return known
    if target.operation.one_call and request.content_type == "multipart/form-data":
        return await one_call(request, services[UPLOAD], service, caller, target)
    # A client's form was read to know the client; its service learns the caller, not the token.
    with_body = target.operation.access is not Access.CLIENT
    return await forward(request, service, caller, target, with_body=with_body)


async def _remembered(
    request: web.Request, caller: Caller, target: Target, stamp: str | None
) -> web.StreamResponse | None:
    """The answer of an operation whose answers are remembered, where it needs no more than that."""
    match target.operation.known:
        case CacheKind.RELEASE:
            latest = await request.app[RELEASES].latest(caller, stamp)
            return BytesResponse(body=latest, content_type="application/json")
        case CacheKind.CATALOG if catalog := await request.app[CATALOGS].find(request, caller, stamp):
            return await catalog.send(request)
        case CacheKind.LISTING:
            return await request.app[LISTINGS].find(request, caller, target, stamp)
    return None
