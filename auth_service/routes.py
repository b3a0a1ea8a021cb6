"""The operations of auth_service."""

from datetime import datetime
from functools import cache
from importlib.metadata import version

from aiohttp import web

from auth_service import forms, views
from auth_service.app_keys import ATTEMPTS, AUDIT_LOG, LOGIN, TENANTS, USAGES, USERS
from auth_service.model import PASSWORD_LIMIT, USERNAME_LIMIT, AuditEntry
from auth_service.tenants.service import administrators_changes, in_words
from common.errors import InvalidRequest
from common.http.forms import Form, query_form, read_form
from common.http.middleware import audit, caller_of, json_response
from common.telemetry import request_id
from common.tenants import VersionKey, parse_network

NETWORKS_LIMIT = 1000
software_version = cache(version)  # which reads a file

routes = web.RouteTableDef()


@routes.post("/{tenant_id}/login")
async def login(request: web.Request) -> web.Response:
    form = await read_form(request)
    username = form.text("username", limit=USERNAME_LIMIT)
    password = form.text("password", limit=PASSWORD_LIMIT)
    with request.app[ATTEMPTS].counted():
        token = await request.app[LOGIN].login(caller_of(request), username, password, request_id=request_id())
    return json_response({"message": token})


@routes.post("/{tenant_id}/logout")
async def logout(request: web.Request) -> web.Response:
    token = (await read_form(request)).text("token", limit=4096)
    await request.app[LOGIN].logout(caller_of(request), token, request_id=request_id())
    return json_response({"message": "Logout Successful!"})


@routes.get("/{tenant_id}/get_users")
async def get_users(request: web.Request) -> web.Response:
    users = await request.app[USERS].list(caller_of(request).tenant_id)
    return json_response([views.user(user) for user in users])


@routes.post("/{tenant_id}/add_user")
async def add_user(request: web.Request) -> web.Response:
    form = await read_form(request)
    username = form.text("username", limit=USERNAME_LIMIT)
    password = form.text("password", limit=PASSWORD_LIMIT)
    audit(request, username=username)
    await request.app[USERS].create(caller_of(request).tenant_id, username, password)
    return json_response({"Message": "User was added successfully!"}, status=201)


@routes.delete("/{tenant_id}/delete_user/{username:[^/]+}")
async def delete_user(request: web.Request) -> web.Response:
    username = request.match_info["username"]
    audit(request, username=username)
    await request.app[USERS].delete(caller_of(request).tenant_id, username)
    return json_response({"Message": "User was deleted successfully!"})


@routes.post("/{tenant_id}/change_password")
async def change_password(request: web.Request) -> web.Response:
    caller, form = caller_of(request), await read_form(request)
    old = form.text("old_password", limit=PASSWORD_LIMIT)
    new = form.text("new_password", limit=PASSWORD_LIMIT)
    audit(request, username=caller.username)
    await request.app[LOGIN].change_password(caller, old, new)
    return json_response({"Message": "Password was changed successfully!"})


@routes.get("/{tenant_id}/server_information")
async def server_information(request: web.Request) -> web.Response:
    caller = caller_of(request)
    tenant = await request.app[TENANTS].find(caller.tenant_id)
    usage = await request.app[USAGES].of(caller)
    return json_response(views.server_information(tenant, usage, software_version("pkgrepo")))


@routes.patch("/{tenant_id}/edit_settings")
async def edit_settings(request: web.Request) -> web.Response:
    caller, form = caller_of(request), await read_form(request)
    agreements = form.get("source_agreements")
    changes = administrators_changes(
        caller.address,
        client_authentication=form.flag("client_authentication") if "client_authentication" in form.fields else None,
        allowed_networks=_networks(form) if "allowed_networks" in form.fields else None,
        version_key=form.choice("version_key", VersionKey) if "version_key" in form.fields else None,
        strict_installers=form.flag("strict_installers") if "strict_installers" in form.fields else None,
        source_agreements=None if agreements is None else forms.source_agreements(agreements),
    )
    audit(request, **{name: in_words(value) for name, value in changes.items()})
    changed = await request.app[TENANTS].edit(caller.tenant_id, changes)
    audit(request, changed)
    return json_response({"Message": "Settings were updated successfully!"})


@routes.get("/{tenant_id}/get_audit_log")
async def get_audit_log(request: web.Request) -> web.StreamResponse:
    query = query_form(request)
    tenant_id, wanted, audit_log = caller_of(request).tenant_id, forms.selection(query), request.app[AUDIT_LOG]
    if forms.as_lines(query):
        return await views.send_lines(request, audit_log.select(tenant_id, wanted, limit=forms.page(query, default=0)))
    found = audit_log.select(tenant_id, wanted, limit=forms.page(query, default=100))
    return json_response([views.audit_entry(link) async for link in found if link])


@routes.post("/{tenant_id}/find_tenant")
async def find_tenant(request: web.Request) -> web.Response:
    """Internal: a tenant's settings, for the gateway."""
    return json_response(views.tenant(await request.app[TENANTS].find(caller_of(request).tenant_id)))


@routes.post("/{tenant_id}/record_audit")
async def record_audit(request: web.Request) -> web.Response:
    """Internal: what an administrator did elsewhere, told by the gateway."""
    try:
        told = await request.json()
        entry = AuditEntry(
            operation=told["operation"],
            user=told["user"],
            ip=told["ip"],
            status=told["status"],
            request_id=told["request_id"],
            target=told["target"],
            changes={name: (before, after) for name, (before, after) in told["changes"].items()},
            at=datetime.fromisoformat(told["at"]),
            entry_id=told["id"],
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidRequest("This is no entry of the audit log.") from error
    await request.app[AUDIT_LOG].record(caller_of(request).tenant_id, entry)
    return json_response({})


def _networks(form: Form) -> tuple[str, ...]:
    listed = form.texts("allowed_networks", limit=128, most=NETWORKS_LIMIT)
    return tuple(parse_network("allowed_networks", text) for text in listed)
