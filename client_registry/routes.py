"""The operations of client_registry: their forms, and the bodies of their responses."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import PurePath
from typing import Any
from uuid import uuid4

from aiohttp import web
from aiohttp.typedefs import Handler

from client_registry.blacklist.store import Entry, Group, GroupNotFound, MongoBlacklistStore
from client_registry.clients.csv_import import ClientImport, parse_rows
from client_registry.clients.enrollment import Enrollment
from client_registry.clients.service import NAME_LIMIT, SEEN_WITHIN, Clients, IssuedToken, host_name
from client_registry.clients.store import Client, ClientNotFound, ClientQuery, uuid_text
from client_registry.releases.service import BEFORE_THE_FIRST, Releases, release_version
from client_registry.releases.store import Release
from client_registry.settings import RegistrySettings
from common.auth.downloads import download_url
from common.auth.internal_tokens import Caller
from common.errors import InvalidField, InvalidRequest
from common.http.bodies import FORM_LIMIT, read_body, read_json
from common.http.forms import MAX_INTEGER, Form, query_form, read_form
from common.http.middleware import audit, caller_of, json_response
from common.redis import TenantVersions
from common.tenants import RING_LIMIT, RingRules, parse_network

SETTINGS = web.AppKey("settings", RegistrySettings)
CLIENTS = web.AppKey("clients", Clients)
CLIENT_IMPORT = web.AppKey("client_import", ClientImport)
ENROLLMENT = web.AppKey("enrollment", Enrollment)
BLACKLIST = web.AppKey("blacklist", MongoBlacklistStore)
RELEASES = web.AppKey("releases", Releases)
TENANT_VERSIONS = web.AppKey("tenant_versions", TenantVersions)
TOKEN_LIMIT, TOKEN_ID_LIMIT = 4096, 64  # characters
State = StrEnum("State", ["ENABLED", "DISABLED"])
Seen = StrEnum("Seen", ["DAY", "WEEK", "MONTH", "SILENT", "NEVER"])  # SILENT: not in the last month
AUDITED_NAMES = 50  # of the clients of a file
PAGE, PAGE_LIMIT = 50, 100  # clients
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
    return json_response([client_body(client) for client in clients])


@routes.get("/{tenant_id}/find_clients")
async def find_clients(request: web.Request) -> web.Response:
    clients, total = await request.app[CLIENTS].find(caller_of(request).tenant_id, client_query(request))
    return json_response({"clients": [client_body(client) for client in clients], "total": total})


@routes.post("/{tenant_id}/add_client")
@invalidates_caches
async def add_client(request: web.Request) -> web.Response:
    name = client_name(await read_form(request))
    audit(request, client_name=name)
    client, token = await request.app[CLIENTS].add(caller_of(request), name)
    audit(request, client_id=client.client_id, client_name=client.name)
    issued = issued_token(caller_of(request), client, token)
    return json_response({"Message": "Client was added successfully!", **issued}, status=201)


@routes.post("/{tenant_id}/import_clients")
@invalidates_caches
async def import_clients(request: web.Request) -> web.Response:
    """The body is the file; the query has the tenant's `rings`, which the gateway knows, and `skip_existing`."""
    query = query_form(request)
    content, rings = await read_body(request, FORM_LIMIT), query.texts("rings", limit=RING_LIMIT)
    rows = await asyncio.to_thread(parse_rows, content, set(rings))
    names = [row.name for row in rows[:AUDITED_NAMES]]
    audit(request, clients=str(len(rows)), client_name=names)
    importer, skip_existing = request.app[CLIENT_IMPORT], query.flag("skip_existing")
    issued = await importer.add(caller_of(request), rows, skip_existing=skip_existing)
    skipped = len(rows) - len(issued)
    names = [client.name for client, _ in issued[:AUDITED_NAMES]]
    audit(request, clients=str(len(issued)), skipped=str(skipped), client_name=names)
    caller = caller_of(request)
    tokens = [{"client_name": client.name, **issued_token(caller, client, token)} for client, token in issued]
    body = {"Message": "Clients were imported successfully!", "clients": tokens, "skipped": skipped}
    return json_response(body, status=201)


@routes.post("/{tenant_id}/enroll_client")
@invalidates_caches
async def enroll_client(request: web.Request) -> web.Response:
    name, caller = client_name(await read_form(request)), caller_of(request)
    audit(request, client_name=name)
    client, token, is_new = await request.app[ENROLLMENT].enroll(caller, name)
    audit(request, client_id=client.client_id, client_name=client.name)
    body = {"Message": "Client was enrolled successfully!", **issued_token(caller, client, token)}
    return json_response(body, status=201 if is_new else 200)


@routes.patch("/{tenant_id}/edit_client/{client_id:[^/]+}")
@invalidates_caches
async def edit_client(request: web.Request) -> web.Response:
    client_id, caller = request.match_info["client_id"], caller_of(request)
    changes = client_changes(await read_form(request))
    audit(request, client_id=client_id, **audit_changes(changes))
    await request.app[CLIENTS].edit(caller.tenant_id, client_id, changes)
    return json_response({"Message": "Client was updated successfully!"})


@routes.post("/{tenant_id}/rotate_client_token/{client_id:[^/]+}")
@invalidates_caches
async def rotate_client_token(request: web.Request) -> web.Response:
    client_id = request.match_info["client_id"]
    audit(request, client_id=client_id)
    caller = caller_of(request)
    issued = issued_token(caller, *await request.app[CLIENTS].rotate_token(caller.tenant_id, client_id))
    return json_response({"Message": "Client token was replaced successfully!", **issued})


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
    entry = new_entry(form)
    audit(request, **audit_target(entry))
    if name := client_of_entry(form):
        entry = replace(entry, client_id=await request.app[CLIENTS].id_of(caller.tenant_id, name))
    await request.app[BLACKLIST].add_entry(caller.tenant_id, entry)
    audit(request, entry_id=entry.entry_id, **audit_target(entry))
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
    group = new_group(await read_form(request))
    audit(request, name=group.name, package_ids=group.package_ids)
    await request.app[BLACKLIST].add_group(caller_of(request).tenant_id, group)
    audit(request, group_id=group.group_id, name=group.name, package_ids=group.package_ids)
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
    return json_response(version_body(latest, caller, request.app[SETTINGS], time.time()))


@routes.post("/{tenant_id}/publish_client")
@invalidates_caches
async def publish_client(request: web.Request) -> web.Response:
    version, server_filename = new_release(await read_form(request))
    audit(request, version=version)
    release = await request.app[RELEASES].publish(caller_of(request), version, server_filename)
    return json_response(release_body(release))


@routes.post("/{tenant_id}/identify_client")
async def identify_client(request: web.Request) -> web.Response:
    """Internal: the client that a token names, its ring and whether it may use a source address, for the gateway."""
    token, program = await client_credentials(request)
    client = await request.app[CLIENTS].identify(caller_of(request), token, program)
    body = {"client_id": client and client.client_id, "ring": client.ring if client else ""}
    return json_response({**body, "source_address": client is not None and client.source_address})


@routes.post("/{tenant_id}/hidden_packages")
async def hidden_packages(request: web.Request) -> web.Response:
    """Internal: the packages that are hidden from the caller, for the gateway and catalog_service."""
    return json_response({"package_ids": await request.app[BLACKLIST].hidden_from(caller_of(request))})


@routes.post("/{tenant_id}/client_usage")
async def client_usage(request: web.Request) -> web.Response:
    """Internal: the number of clients, and of those in each ring, for the gateway's server information."""
    rules = await ring_rules(request)
    by_ring = await request.app[CLIENTS].count_by_ring(caller_of(request).tenant_id, rules)
    clients = sum(by_ring.values())
    return json_response({"clients": clients, "clients_by_ring": by_ring if rules.rings else {}})


@routes.post("/{tenant_id}/find_clients_in_ring")
async def find_clients_in_ring(request: web.Request) -> web.Response:
    """Internal: `find_clients` for a query with a ring, for the gateway. Raises InvalidField for an unknown ring."""
    rules, query, tenant_id = await ring_rules(request), client_query(request), caller_of(request).tenant_id
    clients, total = await request.app[CLIENTS].find_in_ring(tenant_id, query, request.query["ring"], rules)
    return json_response({"clients": [client_body(client) for client in clients], "total": total})


@routes.post("/{tenant_id}/clients_seen")
async def clients_seen(request: web.Request) -> web.Response:
    """Internal: the number of clients that called in the last day, week and month, for the gateway's overview."""
    return json_response(await request.app[CLIENTS].count_seen(caller_of(request).tenant_id))


def client_name(form: Form) -> str:
    return host_name("client_name", form.text("client_name", limit=NAME_LIMIT).strip())


async def ring_rules(request: web.Request) -> RingRules:
    """The `rings` and `ring_rules` of the tenant, which the gateway sends."""
    data = await read_json(request)
    return RingRules(data.get("rings", ()), data.get("ring_rules", ()))


def client_query(request: web.Request) -> ClientQuery:
    """The query of `find_clients`; an impossible id matches no client. Raises InvalidField."""
    query = query_form(request)
    client_ids = query.texts("client_id", limit=TOKEN_LIMIT, most=PAGE_LIMIT)
    return ClientQuery(
        text=query.text("text", limit=NAME_LIMIT, required=False),
        client_ids=tuple(uuid_text(text) or "" for text in client_ids),
        enabled=query.choice("state", State) is State.ENABLED if query.get("state") else None,
        last_seen=seen_filter(query.choice("seen", Seen), datetime.now(UTC)) if query.get("seen") else {},
        enrolled_by=query.text("enrolled_by", limit=TOKEN_ID_LIMIT, required=False),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT),
    )


def seen_filter(seen: Seen, now: datetime) -> Mapping[str, datetime | None]:
    """The condition on the last call."""
    if seen is Seen.NEVER:
        return {"$eq": None}
    since = now - SEEN_WITHIN["month" if seen is Seen.SILENT else seen]
    return {"$lt": since} if seen is Seen.SILENT else {"$gte": since}


def client_changes(form: Form) -> dict[str, str | bool]:
    """The fields of a client to change, at least one; the gateway has checked the `ring`. Raises InvalidField."""
    changes: dict[str, str | bool] = {}
    if "ring" in form.fields:
        changes["ring"] = form.text("ring", limit=RING_LIMIT, required=False)
    if "source_address" in form.fields:
        changes["source_address"] = form.flag("source_address")
    if "enabled" in form.fields or not changes:
        changes["enabled"] = form.flag("enabled")
    return changes


def new_entry(form: Form) -> Entry:
    """A blacklist entry with a new id.

    Raises:
        InvalidField: the network is invalid, or neither packages nor a group are given.
        ClientNotFound, GroupNotFound: the id is impossible.
    """
    client_id = form.text("client_id", limit=TOKEN_LIMIT, required=False)
    group_id = form.text("group", limit=TOKEN_LIMIT, required=False)
    network_text = form.text("network", limit=128, required=False)
    package_ids = _package_ids(form)
    if not package_ids and not group_id:
        raise InvalidField("package_ids", "is required where no group is given", reason="required_without_group")
    if client_id and not uuid_text(client_id):
        raise ClientNotFound
    if group_id and not uuid_text(group_id):
        raise GroupNotFound
    network = parse_network("network", network_text) if network_text else None
    return Entry(str(uuid4()), uuid_text(client_id), network, package_ids, uuid_text(group_id), datetime.now(UTC))


def client_of_entry(form: Form) -> str:
    """The name of an entry's client; "" if the form has none. Raises InvalidField for a name beside an id."""
    name = form.text("hostname", limit=NAME_LIMIT, required=False).strip()
    if name and form.get("client_id"):
        raise InvalidField("hostname", "is not for a form with client_id", reason="name_and_id")
    return name


def new_group(form: Form) -> Group:
    """A group of packages with a new id. Raises InvalidField."""
    name, package_ids = form.text("name", limit=256), _package_ids(form)
    if not package_ids:
        raise InvalidField("package_ids", "is required", reason="required")
    return Group(str(uuid4()), name, package_ids, datetime.now(UTC))


def new_release(form: Form) -> tuple[str, str]:
    """The version, and the name of an uploaded file; "" for none."""
    version = release_version("version", form.text("version", limit=32).strip())
    return version, form.text("server_filename", limit=256, required=False)


async def client_credentials(request: web.Request) -> tuple[str, int]:
    """The token and the kind of program of a client, sent by the gateway; "" is no token. Raises InvalidRequest."""
    data = await read_json(request)
    token, program = data.get("auth_token"), data.get("client", 0)
    if isinstance(program, bool) or not isinstance(program, int) or not 0 <= program <= MAX_INTEGER:
        message = f"must be a whole number from 0 to {MAX_INTEGER}"
        raise InvalidField("client", message, reason="not_in_range", least=0, most=MAX_INTEGER)
    return token if isinstance(token, str) else "", program


def _package_ids(form: Form) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form.texts("package_ids", limit=128)))


def issued_token(caller: Caller, client: Client, token: IssuedToken) -> dict[str, str]:
    """A new token, and the client's personal address of the source; "" if it may not use one."""
    may_use = caller.tenant.source_address and client.source_address
    address = f"{caller.base_url}/source/{token.text}/winget" if may_use else ""
    return {"client_id": client.client_id, "auth_token": token.text, "source_url": address}


def client_body(client: Client) -> dict[str, Any]:
    values = dict(vars(client))
    return {"client_name": values.pop("name"), "client": values.pop("program"), **values}


def audit_changes(changes: Mapping[str, str | bool]) -> dict[str, str]:
    """The new values of a client, for the audit log."""
    return {name: value if isinstance(value, str) else str(int(value)) for name, value in changes.items()}


def audit_target(entry: Entry) -> dict[str, str | Sequence[str]]:
    """The given fields of an entry's form, for the audit log."""
    fields = {name: getattr(entry, name) for name in ("client_id", "network", "package_ids")}
    return {name: value for name, value in {**fields, "group": entry.group_id}.items() if value}


def version_body(latest: Release | None, caller: Caller, settings: RegistrySettings, now: float) -> dict[str, str]:
    """The latest version and, if it has a file, its address and digest. `now` is in seconds since 1970."""
    if latest is None:
        return {"Version": BEFORE_THE_FIRST}
    if latest.installer is None:
        return {"Version": latest.version}
    server_filename = latest.installer.server_filename
    address = download_url(
        caller,
        settings.download_key,
        direct=settings.download_url,
        server_filename=server_filename,
        file_name=f"client-{latest.version}{PurePath(server_filename).suffix}",
        expires=int(now) + settings.download_lifetime,
    )
    return {"Version": latest.version, "INSTALLER_URL": address, "INSTALLER_SHA256": latest.installer.sha256}


def release_body(release: Release) -> dict[str, str]:
    body = {"Message": "Client was published successfully!", "version": release.version}
    return {**body, "sha256": release.installer.sha256} if release.installer else body
