"""The operations of client_registry."""

import time
from dataclasses import replace
from functools import wraps

from aiohttp import web
from aiohttp.typedefs import Handler

from client_registry import forms, views
from client_registry.app_keys import BLACKLIST, CLIENTS, RELEASES, SETTINGS, TENANT_VERSIONS
from common.errors import InvalidRequest
from common.http.forms import read_form
from common.http.middleware import audit, caller_of, json_response

routes = web.RouteTableDef()


def invalidates_caches(handler: Handler) -> Handler:
    """Decorate a write: it invalidates what gateways cache of the tenant, even if it fails."""

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        async with request.app[TENANT_VERSIONS].invalidate_during(caller_of(request).tenant_id):
            return await handler(request)

    return handle


@routes.get("/{tenant_id}/get_clients")
async def get_clients(request: web.Request) -> web.Response:
    clients = await request.app[CLIENTS].list(caller_of(request).tenant_id)
    return json_response([views.client(client) for client in clients])


@routes.get("/{tenant_id}/find_clients")
async def find_clients(request: web.Request) -> web.Response:
    clients, total = await request.app[CLIENTS].find(caller_of(request).tenant_id, forms.client_query(request))
    return json_response({"clients": [views.client(client) for client in clients], "total": total})


@routes.post("/{tenant_id}/add_client")
@invalidates_caches
async def add_client(request: web.Request) -> web.Response:
    name = forms.client_name(await read_form(request))
    audit(request, client_name=name)
    client, token = await request.app[CLIENTS].add(caller_of(request), name)
    audit(request, client_id=client.client_id, client_name=client.name)
    body = {"Message": "Client was added successfully!", "client_id": client.client_id, "auth_token": token.text}
    return json_response(body, status=201)


@routes.patch("/{tenant_id}/edit_client/{client_id:[^/]+}")
@invalidates_caches
async def edit_client(request: web.Request) -> web.Response:
    client_id, caller = request.match_info["client_id"], caller_of(request)
    changes = forms.client_changes(await read_form(request))
    audit(request, client_id=client_id, **views.audit_changes(changes))
    await request.app[CLIENTS].edit(caller.tenant_id, client_id, changes)
    return json_response({"Message": "Client was updated successfully!"})


@routes.post("/{tenant_id}/rotate_client_token/{client_id:[^/]+}")
@invalidates_caches
async def rotate_client_token(request: web.Request) -> web.Response:
    client_id = request.match_info["client_id"]
    audit(request, client_id=client_id)
    token = await request.app[CLIENTS].rotate_token(caller_of(request).tenant_id, client_id)
    return json_response({"Message": "Client token was replaced successfully!", "auth_token": token.text})


@routes.delete("/{tenant_id}/delete_client")
@routes.delete("/{tenant_id}/delete_client/{client_id:[^/]*}")
@routes.delete("/{tenant_id}/delete_client/{client_id:[^/]*}/{auth_token:[^/]*}")
@invalidates_caches
async def delete_client(request: web.Request) -> web.Response:
    client_id, token = (request.match_info.get(name, "").strip() for name in ("client_id", "auth_token"))
    if not client_id or not token:
        raise InvalidRequest("A client's id and its token are required: delete_client/{client_id}/{auth_token}.")
    audit(request, client_id=client_id)
    await request.app[CLIENTS].delete(caller_of(request).tenant_id, client_id, token)
    return json_response({"Message": "Client was removed successfully!"})


@routes.get("/{tenant_id}/get_blacklist")
async def get_blacklist(request: web.Request) -> web.Response:
    entries = await request.app[BLACKLIST].entries(caller_of(request).tenant_id)
    return json_response([vars(entry) for entry in entries])


@routes.post("/{tenant_id}/add_blacklist_entry")
@invalidates_caches
async def add_blacklist_entry(request: web.Request) -> web.Response:
    form, caller = await read_form(request), caller_of(request)
    entry = forms.new_entry(form)
    audit(request, **views.audit_target(entry))
    if name := forms.client_of_entry(form):
        entry = replace(entry, client_id=await request.app[CLIENTS].id_of(caller.tenant_id, name))
    await request.app[BLACKLIST].add_entry(caller.tenant_id, entry)
    audit(request, entry_id=entry.entry_id, **views.audit_target(entry))
    return json_response({"Message": "Blacklist entry was added successfully!", "entry_id": entry.entry_id}, status=201)


@routes.delete("/{tenant_id}/delete_blacklist_entry/{entry_id:[^/]+}")
@invalidates_caches
async def delete_blacklist_entry(request: web.Request) -> web.Response:
    entry_id = request.match_info["entry_id"]
    audit(request, entry_id=entry_id)
    await request.app[BLACKLIST].delete_entry(caller_of(request).tenant_id, entry_id)
    return json_response({"Message": "Blacklist entry was deleted successfully!"})


@routes.get("/{tenant_id}/get_blacklist_groups")
async def get_blacklist_groups(request: web.Request) -> web.Response:
    groups = await request.app[BLACKLIST].groups(caller_of(request).tenant_id)
    return json_response([vars(group) for group in groups])


@routes.post("/{tenant_id}/add_blacklist_group")
@invalidates_caches
async def add_blacklist_group(request: web.Request) -> web.Response:
    name, package_ids = forms.new_group(await read_form(request))
    audit(request, name=name, package_ids=package_ids)
    group = await request.app[BLACKLIST].add_group(caller_of(request).tenant_id, name, package_ids)
    audit(request, group_id=group.group_id, name=group.name, package_ids=package_ids)
    return json_response({"Message": "Blacklist group was added successfully!", "group_id": group.group_id}, status=201)


@routes.delete("/{tenant_id}/delete_blacklist_group/{group_id:[^/]+}")
@invalidates_caches
async def delete_blacklist_group(request: web.Request) -> web.Response:
    group_id = request.match_info["group_id"]
    audit(request, group_id=group_id)
    await request.app[BLACKLIST].delete_group(caller_of(request).tenant_id, group_id)
    return json_response({"Message": "Blacklist group was deleted successfully!"})


@routes.post("/{tenant_id}/client_version")
async def client_version(request: web.Request) -> web.Response:
    caller = caller_of(request)
    latest = await request.app[RELEASES].latest(caller.tenant_id)
    return json_response(views.client_version(latest, caller, request.app[SETTINGS], time.time()))


@routes.post("/{tenant_id}/publish_client")
@invalidates_caches
async def publish_client(request: web.Request) -> web.Response:
    version, server_filename = forms.new_release(await read_form(request))
    audit(request, version=version)
    release = await request.app[RELEASES].publish(caller_of(request), version, server_filename)
    return json_response(views.published(release))


@routes.post("/{tenant_id}/identify_client")
async def identify_client(request: web.Request) -> web.Response:
    """Internal: the client that a token names, and its ring, for the gateway."""
    token, program = await forms.client_credentials(request)
    client = await request.app[CLIENTS].identify(caller_of(request), token, program)
    return json_response({"client_id": client and client.client_id, "ring": client.ring if client else ""})


@routes.post("/{tenant_id}/hidden_packages")
async def hidden_packages(request: web.Request) -> web.Response:
    """Internal: the packages that are hidden from the caller, for the gateway and catalog_service."""
    return json_response({"package_ids": await request.app[BLACKLIST].hidden_from(caller_of(request))})


@routes.post("/{tenant_id}/client_usage")
async def client_usage(request: web.Request) -> web.Response:
    """Internal: the number of clients, for the gateway's server information."""
    return json_response({"clients": await request.app[CLIENTS].count(caller_of(request).tenant_id)})


@routes.post("/{tenant_id}/clients_seen")
async def clients_seen(request: web.Request) -> web.Response:
    """Internal: the number of clients that called in the last day, week and month, for the gateway's overview."""
    return json_response(await request.app[CLIENTS].count_seen(caller_of(request).tenant_id))
