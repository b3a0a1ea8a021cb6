"""How every request travels: address → tenant → network → caller → the service that owns the operation."""

from aiohttp import web

from common.caller import Caller
from common.errors import InvalidRequest
from common.middleware import CALLER, ROUTE, TELLING, Answer
from gateway import documentation, winget
from gateway.addresses import Target
from gateway.composed import one_call
from gateway.keys import CATALOGS, GATEKEEPER, LISTINGS, RECORDER, RELEASES, SERVICES, SETTINGS, TENANTS
from gateway.operations import UPLOAD, Access, Known
from gateway.origin import base_url, caller_address
from gateway.proxy import forward
from gateway.tenants import check_network

WORKING = b'{"Message":"Its working!"}'


async def dispatch(request: web.Request) -> web.StreamResponse:
    """Answer any request of the interface."""
    app = request.app
    settings = app[SETTINGS]
    target = Target.parse(request.method, request.raw_path, settings.deployment, settings.tenant_id)
    request[ROUTE] = target.operation.route
    if target.operation.of_winget:
        request[TELLING] = winget.problem
    address = caller_address(request, settings.trusted_proxies)
    tenants, gatekeeper = app[TENANTS], app[GATEKEEPER]
    welcome = tenants.welcomes(target.tenant_id, address)
    look = await gatekeeper.look(request, target.operation, target.tenant_id, welcome=welcome)
    tenant = await tenants.find(target.tenant_id, look.stamp, changing=look.changing)
    check_network(tenant, address)
    visitor = Caller(
        tenant=tenant,
        ip=str(address),
        base_url=base_url(request, settings, tenant.tenant_id),
        deployment=settings.deployment,
    )
    request[CALLER] = visitor  # for the log
    caller = await gatekeeper.identify(request, target.operation, visitor, look)
    if target.operation.known is Known.SESSION:
        return Answer(body=WORKING, content_type="application/json")
    answer = _respond(request, caller, target, look.stamp)
    if target.operation.access is not Access.ADMINISTRATOR:
        return await answer
    return await app[RECORDER].recorded(request, caller, target, answer)


async def _respond(request: web.Request, caller: Caller, target: Target, stamp: str | None) -> web.StreamResponse:
    target.check_complete()
    if target.operation.access is Access.PAGE:
        return await documentation.page(request, caller, target)
    if target.operation.known is Known.SOURCE:
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
        case Known.RELEASE:
            latest = await request.app[RELEASES].latest(caller, stamp)
            return Answer(body=latest, content_type="application/json")
        case Known.CATALOG if catalog := await request.app[CATALOGS].find(request, caller, stamp):
            return await catalog.send(request)
        case Known.LISTING:
            return await request.app[LISTINGS].find(request, caller, target, stamp)
    return None
