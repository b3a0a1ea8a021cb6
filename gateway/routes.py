"""The way of every request: target, caller, then a page or an operation of a service."""

from aiohttp import web

from common.http.middleware import CLIENT_ADDRESS, PROBLEM_RENDERER, ROUTE, BytesResponse
from gateway import winget
from gateway.auth.authenticator import AUTHENTICATOR
from gateway.dashboard.page_request import url_without_alias
from gateway.dashboard.routes import dispatch_dashboard, dispatch_page, problem_page, redirect_browser
from gateway.forwarding.execute import execute_operation
from gateway.operations import Access
from gateway.routing import NoSuchOperation, Target, caller_address
from gateway.settings import SETTINGS


async def dispatch(request: web.Request) -> web.StreamResponse:
    """Answer any request of the interface."""
    settings = request.app[SETTINGS]
    request[CLIENT_ADDRESS] = caller_address(request, settings.trusted_proxies)
    try:
        target = Target.parse(request.method, request.raw_path, settings.deployment, settings.tenant_id)
    except NoSuchOperation:
        request[PROBLEM_RENDERER] = lambda problem: problem_page(request, problem)
        return redirect_browser(request)
    request[ROUTE] = target.operation.route
    if target.operation.is_winget:
        request[PROBLEM_RENDERER] = winget.problem
    elif target.is_page:
        request[PROBLEM_RENDERER] = lambda problem: problem_page(request, problem)  # until there is a tenant
    caller = await request.app[AUTHENTICATOR].authenticate(request, target)
    if target.is_alias and target.is_page:
        # Pages link to each other below the tenant's own path, so they have that one address.
        return BytesResponse(status=307, headers={"Location": url_without_alias(request, caller, target)})
    match target.operation.access:
        case Access.PAGE:
            return await dispatch_page(request, caller, target)
        case Access.DASHBOARD:
            return await dispatch_dashboard(request, caller, target.segments[1:])
        case _:
            return await execute_operation(request, caller, target)
