"""How every request travels: address → tenant → network → caller → the service that owns the operation."""

from aiohttp import web

from common.auth.callers import Caller
from common.http.middleware import CALLER, PROBLEM_RENDERER, ROUTE, BytesResponse
from gateway import documentation, winget
from gateway.app_keys import AUTHENTICATOR, SETTINGS, TENANTS
from gateway.dashboard.redirects import url_without_alias
from gateway.dashboard.routes import dispatch as dispatch_page
from gateway.forwarding.execute import execute_operation
from gateway.operations import Access
from gateway.routing.client_address import base_url, caller_address
from gateway.routing.target import Target
from gateway.routing.tenant_directory import check_network


async def dispatch(request: web.Request) -> web.StreamResponse:
    """Answer any request of the interface."""
    app = request.app
    settings = app[SETTINGS]
    target = Target.parse(request.method, request.raw_path, settings.deployment, settings.tenant_id)
    request[ROUTE] = target.operation.route
    if target.operation.of_winget:
        request[PROBLEM_RENDERER] = winget.problem
    address = caller_address(request, settings.trusted_proxies)
    tenants, gatekeeper = app[TENANTS], app[AUTHENTICATOR]
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
    if target.is_alias and target.operation.access in {Access.PAGE, Access.DASHBOARD}:
        # Links between pages are paths below the tenant's own, so pages have that one address.
        return BytesResponse(status=307, headers={"Location": url_without_alias(request, visitor, target)})
    caller = await gatekeeper.identify(request, target.operation, visitor, look)
    match target.operation.access:
        case Access.PAGE:
            return await documentation.page(request, caller, target)
        case Access.DASHBOARD:
            return await dispatch_page(request, caller, target.segments[1:], look.stamp)
        case _:
            return await execute_operation(request, caller, target, look.stamp)
