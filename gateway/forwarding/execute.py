"""Executes an operation of the interface for its caller: from a cache, or by a service."""

from aiohttp import web

from common.auth.internal_tokens import Caller, Kind
from common.auth.roles import Permission, PermissionMissing, has_permission
from common.errors import InvalidRequest
from common.http.middleware import BytesResponse
from gateway import winget
from gateway.app_keys import AUDIT_RECORDER, AUTHENTICATOR, CATALOGS, CLIENT_DIRECTORY, PACKAGE_RESPONSES, SERVICES
from gateway.auth.authenticator import TENANT_VERSION
from gateway.forwarding import composed
from gateway.forwarding.one_call import one_call
from gateway.forwarding.proxy import forward
from gateway.operations import GATEWAY, UPLOAD, Access, CacheKind
from gateway.routing.target import Target

SESSION_IS_VALID = b'{"Message":"Its working!"}'


async def execute_operation(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """The operation's response. Administrators' writes are recorded. Raises the problem that the operation ends in."""
    if target.operation.cache is CacheKind.SESSION:
        return BytesResponse(body=SESSION_IS_VALID, content_type="application/json")
    if target.operation.access not in {Access.ADMINISTRATOR, Access.SESSION}:
        return await _execute(request, caller, target)
    return await request.app[AUDIT_RECORDER].record(request, caller, target, _execute(request, caller, target))


def check_permission(caller: Caller, permission: Permission) -> None:
    """Raise PermissionMissing if the caller is a user or an API token without a role that has the permission."""
    if caller.kind is Kind.ADMINISTRATOR and not has_permission(caller.roles, permission):
        raise PermissionMissing(permission=permission)


async def _execute(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    operation = target.operation
    check_permission(caller, operation.permission)
    target.check_complete()
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise InvalidRequest("A compressed body is not accepted.")
    if (response := await _cached(request, caller, target)) is not None:
        return response
    if operation.service == GATEWAY:
        return await OWN_OPERATIONS[operation.name](request, caller, target)
    if operation.checked_by:
        return await composed.check_names(request, caller, target)
    services = request.app[SERVICES]
    service = services[operation.service]
    if operation.one_call and request.content_type == "multipart/form-data":
        return await one_call(request, services[UPLOAD], service, caller, target)
    return await forward(request, service, caller, target)


async def _source_information(request: web.Request, caller: Caller, _: Target) -> web.StreamResponse:
    """The description of the tenant as a source. SYSTEM cannot sign in with Entra ID, so its client token is enough."""
    app = caller.tenant.entra
    if app and await request.app[AUTHENTICATOR].has_client_token(request, caller):
        app = None
    return winget.information(caller.tenant, app)


OWN_OPERATIONS = {
    "server_information": composed.show_server_information,
    "edit_settings": composed.edit_settings,
    "winget/information": _source_information,
}


async def _cached(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse | None:
    """The response from the operation's cache; None if it has none, or if the request must be forwarded."""
    match target.operation.cache:
        case CacheKind.RELEASE:
            latest = await request.app[CLIENT_DIRECTORY].latest_release(caller, request[TENANT_VERSION])
            return BytesResponse(body=latest, content_type="application/json")
        case CacheKind.CATALOG if catalog := await request.app[CATALOGS].find(request, caller):
            return await catalog.send(request)
        case CacheKind.PACKAGE:
            return await request.app[PACKAGE_RESPONSES].find(request, caller, target)
    return None
