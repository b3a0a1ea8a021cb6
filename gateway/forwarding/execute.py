"""Executes an operation of the interface for its caller: from a cache, by a service, or by several.

The gateway calls each service of an operation that concerns several, so services never call each other in a circle.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import web

from common.auth.internal_tokens import Caller, Kind
from common.auth.roles import FOR_TOKENS_ONLY, Permission, PermissionMissing, has_permission
from common.errors import InvalidRequest, Problem
from common.http.forms import MULTIPART, URLENCODED, Form, flag, read_form
from common.http.middleware import BytesResponse, audit_details, json_response
from common.http.zero_copy.request_bodies import CallerBody
from common.service_client.client import ServiceClient, json_of
from common.telemetry import log, software_version
from common.tenants import RING_LIMIT
from gateway import winget
from gateway.auth.authenticator import AUTHENTICATOR, TENANT_VERSION
from gateway.auth.directories import CLIENT_DIRECTORY, POLICIES
from gateway.caching.catalogs import CATALOGS
from gateway.caching.package_responses import PACKAGE_RESPONSES
from gateway.forwarding.audit import AUDIT_RECORDER
from gateway.forwarding.proxy import AUDIT_DETAILS, FORM_FIELDS, SERVICES, forward, relay
from gateway.forwarding.search import search
from gateway.operations import AUTH, CATALOG, CLIENTS, GATEWAY, UPLOAD, Access, CacheKind
from gateway.routing import Target

SESSION_IS_VALID = b'{"Message":"Its working!"}'
ID_LIMIT = 128  # characters of a package id
POLICY = frozenset({"rings", "ring_rules", "gates", "retention"})  # settings of catalog_service
FormPairs = Sequence[tuple[str, str]]  # names and values


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
        for_tokens = f"You need the permission {permission}. Only an API token can have it."
        raise PermissionMissing(for_tokens if permission in FOR_TOKENS_ONLY else "", permission=permission)


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
    if operation.name == "find_clients" and request.query.get("ring"):
        return json_response(
            await find_clients_in_ring(request.app, caller, request[TENANT_VERSION], request.rel_url.raw_query_string)
        )
    if operation.checked_by:
        return await _check_names(request, caller, target)
    if operation.one_call and request.content_type == MULTIPART:
        return await _one_call(request, caller, target)
    return await forward(request, request.app[SERVICES][operation.service], caller, target)


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


async def _source_information(request: web.Request, caller: Caller, _: Target) -> web.StreamResponse:
    """The description of the tenant as a source. SYSTEM cannot sign in with Entra ID, so its client token is enough."""
    app = caller.tenant.entra
    if app and (caller.kind is Kind.CLIENT or await request.app[AUTHENTICATOR].has_client_token(request, caller)):
        app = None
    return winget.information(caller.tenant, app)


async def server_information(app: web.Application, caller: Caller, version: str | None) -> dict[str, Any]:
    """The limits, the usage and the settings of the caller's tenant, at a version of the tenant.

    Raises Unavailable if one of the services does not answer.
    """
    policy = await app[POLICIES].find(caller, version)
    usage, clients = await asyncio.gather(
        app[SERVICES][UPLOAD].json(caller, "storage_usage"),
        app[CLIENT_DIRECTORY].usage(caller, policy, version),
    )
    tenant = caller.tenant
    return {
        "tenant_id": tenant.tenant_id,
        "software_version": software_version(),
        "storage_used": usage["storage_used"],
        "storage_reserved": usage["storage_reserved"],
        "storage_quota": tenant.storage_quota,
        "damaged_installers": usage["damaged_installers"],
        "clients": clients["clients"],
        "clients_by_ring": clients["clients_by_ring"],
        "max_clients": tenant.max_clients,
        "settings": {
            "client_authentication": tenant.client_authentication,
            "allowed_networks": tenant.allowed_networks,
            "version_key": tenant.version_key,
            "strict_installers": tenant.strict_installers,
            "source_address": tenant.source_address,
            "source_agreements": orjson.loads(tenant.source_agreements or b"[]"),
            "sites": list(map(asdict, tenant.sites)),
            **policy.settings,
        },
    }


async def _show_server_information(request: web.Request, caller: Caller, _: Target) -> web.StreamResponse:
    """Answer `server_information`."""
    return json_response(await server_information(request.app, caller, request[TENANT_VERSION]))


async def find_clients_in_ring(app: web.Application, caller: Caller, version: str | None, query: str) -> Any:
    """The response of `find_clients` to a query with a ring; client_registry finds a client's ring by the policy.

    Raises UpstreamProblem or Unavailable.
    """
    policy = await app[POLICIES].find(caller, version)
    headers, data = {"Content-Type": "application/json"}, orjson.dumps(policy.ring_settings)
    async with app[SERVICES][CLIENTS].open(
        caller, "POST", ["find_clients_in_ring"], query=query, headers=headers, data=data
    ) as response:
        return await json_of(response)


async def _edit_settings(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Change the settings of a form, each at the service that has it. A refused form and a preview change nothing.

    After any other error, repeat the call. Raises UpstreamProblem, Unavailable, InvalidRequest or BodyTooLarge.
    """
    form = await _read_form(request, target)
    pairs = [pair for pair in _pairs(form) if pair[0] != "preview"]
    policy = [pair for pair in pairs if pair[0] in POLICY]
    settings = [pair for pair in pairs if pair[0] not in POLICY]
    steps = [(AUTH, "edit_settings", settings)]
    if flag("preview", form.get("preview") or "false"):
        shows_effect = (CATALOG, "edit_release_policy", [*policy, ("preview", "true")])
        steps = [(AUTH, "check_settings", settings), shows_effect] if settings else [shows_effect]
    elif policy:
        change_policy = (CATALOG, "edit_release_policy", policy)
        steps = [(AUTH, "check_settings", settings), change_policy, *steps] if settings else [change_policy]
    for service, operation, fields in steps:
        response = await _send_form(request, caller, target, fields, service=service, segments=(operation,))
    return response


async def _import_clients(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Send the file of a form to client_registry, with the tenant's rings, which client_registry does not know.

    Raises UpstreamProblem, Unavailable, InvalidRequest or BodyTooLarge.
    """
    form, policy = await _read_form(request, target), await request.app[POLICIES].find(caller, request[TENANT_VERSION])
    data = form.files.get("clients") or (form.get("clients") or "").encode()
    skip_existing = flag("skip_existing", form.get("skip_existing") or "false")
    query = urlencode({"rings": ",".join(policy.settings["rings"]), "skip_existing": skip_existing})
    async with request.app[SERVICES][CLIENTS].open(
        caller, "POST", target.segments, query=query, data=data, timeout=target.operation.timeout
    ) as response:
        return await relay(request, response)


async def _check_names(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Forward a form whose packages and ring exist. It may allow unknown packages.

    Raises UpstreamProblem, Unavailable, InvalidRequest or BodyTooLarge.
    """
    form = await _read_form(request, target)
    names: dict[str, str | Sequence[str]] = {"ring": form.text("ring", limit=RING_LIMIT, required=False)}
    package_ids = form.texts("package_ids", limit=ID_LIMIT)
    if package_ids:
        request[AUDIT_DETAILS] = audit_details(package_ids=package_ids)
    if not flag("allow_unknown", form.get("allow_unknown") or "false"):
        names["package_ids"] = package_ids
    if any(names.values()):
        await request.app[SERVICES][target.operation.checked_by].json(caller, "check_names", names)
    return await _send_form(request, caller, target, _pairs(form))


async def _read_form(request: web.Request, target: Target) -> Form:
    form = await read_form(request, limit=target.operation.body_limit)
    request.app[FORM_FIELDS].check(target.operation, [*form.fields, *form.files])
    return form


def _pairs(form: Form) -> FormPairs:
    return [(name, value) for name, values in form.fields.items() for value in values]


async def _send_form(
    request: web.Request,
    caller: Caller,
    target: Target,
    form: FormPairs,
    *,
    service: str = "",
    segments: Sequence[str] = (),
) -> web.StreamResponse:
    """Send a form to the operation's service, or to another one. Returns its response for the caller."""
    operation, headers = target.operation, {"Content-Type": URLENCODED}
    client, data = request.app[SERVICES][service or operation.service], urlencode(form).encode()
    async with client.open(
        caller, operation.method, segments or target.segments, headers=headers, data=data, timeout=operation.timeout
    ) as response:
        return await relay(request, response)


async def _one_call(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Store the installer of the form, then execute the operation with its other fields; discard it if it is refused.

    upload_service gets the multipart body unchanged. It returns the fields and the name of the stored file, which make
    the two-step request. So creating a version means the same in both forms.

    Raises UpstreamProblem, Unavailable, or InvalidRequest if the caller's body broke off or has an unknown field.
    """
    upload_service = request.app[SERVICES][UPLOAD]
    stored = await _store(request, upload_service, caller, target)
    form, server_filename = [*map(tuple, stored["fields"])], stored["server_filename"]
    if server_filename:
        form.append(("server_filename", server_filename))
    try:
        request.app[FORM_FIELDS].check(target.operation, [name for name, _ in form])
        return await _send_form(request, caller, target, form)
    except Problem:
        if server_filename:
            await _discard(upload_service, caller, server_filename)
        raise


async def _store(request: web.Request, upload_service: ServiceClient, caller: Caller, target: Target) -> Any:
    content, timeout = CallerBody(request), target.operation.timeout
    headers = {name: request.headers[name] for name in ("Content-Type", "Content-Length") if name in request.headers}
    try:
        async with upload_service.open(
            caller, "POST", ["store_installer"], headers=headers, data=content, timeout=timeout, streamed=True
        ) as response:
            return await json_of(response)
    except Problem:
        if content.problem:
            raise content.problem from None
        raise


async def _discard(upload_service: ServiceClient, caller: Caller, server_filename: str) -> None:
    try:
        await upload_service.json(caller, "discard_installer", {"server_filename": server_filename})
    except Problem as problem:
        # The caller gets the first problem; the collector removes the file within a day.
        log.warning("installer_not_discarded", server_filename=server_filename, detail=problem.detail)


OWN_OPERATIONS = {
    "server_information": _show_server_information,
    "edit_settings": _edit_settings,
    "search": search,
    "import_clients": _import_clients,
    "winget/information": _source_information,
}
