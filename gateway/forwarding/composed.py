"""Operations that concern several services. The gateway calls each, so services never call each other in a circle."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import web

from common.auth.internal_tokens import Caller
from common.http.forms import URLENCODED, Form, flag, read_form
from common.http.middleware import audit_details, json_response
from common.telemetry import software_version
from common.tenants import RING_LIMIT
from gateway.app_keys import CLIENT_DIRECTORY, POLICIES, SERVICES
from gateway.auth.authenticator import TENANT_VERSION
from gateway.forwarding.form_fields import FORM_FIELDS
from gateway.forwarding.proxy import AUDIT_DETAILS, relay
from gateway.operations import AUTH, CATALOG, UPLOAD
from gateway.routing.target import Target

ID_LIMIT = 128  # characters of a package id
POLICY = frozenset({"rings", "ring_rules", "gates", "retention"})  # settings of catalog_service
Fields = Mapping[str, Sequence[str]]


async def server_information(app: web.Application, caller: Caller, version: str | None) -> dict[str, Any]:
    """The limits, the usage and the settings of the caller's tenant, at a version of the tenant.

    Raises Unavailable if one of the services does not answer.
    """
    usage, clients, policy = await asyncio.gather(
        app[SERVICES][UPLOAD].json(caller, "storage_usage"),
        app[CLIENT_DIRECTORY].count(caller, version),
        app[POLICIES].find(caller, version),
    )
    tenant = caller.tenant
    return {
        "tenant_id": tenant.tenant_id,
        "software_version": software_version(),
        "storage_used": usage["storage_used"],
        "storage_reserved": usage["storage_reserved"],
        "storage_quota": tenant.storage_quota,
        "damaged_installers": usage["damaged_installers"],
        "clients": clients,
        "max_clients": tenant.max_clients,
        "settings": {
            "client_authentication": tenant.client_authentication,
            "allowed_networks": tenant.allowed_networks,
            "version_key": tenant.version_key,
            "strict_installers": tenant.strict_installers,
            "source_agreements": orjson.loads(tenant.source_agreements or b"[]"),
            **policy.settings,
        },
    }


async def show_server_information(request: web.Request, caller: Caller, _: Target) -> web.StreamResponse:
    """Answer `server_information`."""
    return json_response(await server_information(request.app, caller, request[TENANT_VERSION]))


async def edit_settings(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Change the settings of a form, each at the service that has it. A refused form changes nothing.

    After any other error, repeat the call. Raises UpstreamProblem, Unavailable, InvalidRequest or BodyTooLarge.
    """
    fields = (await _read_form(request, target)).fields
    policy = {name: values for name, values in fields.items() if name in POLICY}
    settings = {name: values for name, values in fields.items() if name not in POLICY}
    steps = [(AUTH, "edit_settings", settings)]
    if policy:
        change_policy = (CATALOG, "edit_release_policy", policy)
        steps = [(AUTH, "check_settings", settings), change_policy, *steps] if settings else [change_policy]
    for service, operation, part in steps:
        response = await _send(request, caller, target, part, service=service, segments=(operation,))
    return response


async def check_names(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Forward a form whose packages and ring exist. It may allow unknown packages.

    Raises UpstreamProblem, Unavailable, InvalidRequest or BodyTooLarge.
    """
    form = await _read_form(request, target)
    names: dict[str, str | Sequence[str]] = {"ring": form.text("ring", limit=RING_LIMIT, required=False)}
    package_ids = form.texts("package_ids", limit=ID_LIMIT)
    if package_ids and not flag("allow_unknown", form.get("allow_unknown") or "false"):
        names["package_ids"] = package_ids
        request[AUDIT_DETAILS] = audit_details(package_ids=package_ids)
    if any(names.values()):
        await request.app[SERVICES][target.operation.checked_by].json(caller, "check_names", names)
    return await _send(request, caller, target, form.fields)


async def _read_form(request: web.Request, target: Target) -> Form:
    form = await read_form(request, limit=target.operation.body_limit)
    request.app[FORM_FIELDS].check(target.operation, [*form.fields, *form.files])
    return form


async def _send(
    request: web.Request,
    caller: Caller,
    target: Target,
    fields: Fields,
    *,
    service: str = "",
    segments: Sequence[str] = (),
) -> web.StreamResponse:
    """Send a form to the operation's service, or to another one. Returns its response for the caller."""
    operation, form = target.operation, [(name, value) for name, values in fields.items() for value in values]
    async with request.app[SERVICES][service or operation.service].open(
        caller,
        operation.method,
        segments or target.segments,
        headers={"Content-Type": URLENCODED},
        data=urlencode(form).encode(),
        timeout=operation.timeout,
    ) as response:
        return await relay(request, response)
