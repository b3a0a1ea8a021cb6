"""Operations that concern two services. The gateway calls both, so services never call each other in a circle."""

from urllib.parse import urlencode

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.http.forms import URLENCODED, Form, flag, read_form
from common.http.middleware import audit_details
from gateway.app_keys import SERVICES
from gateway.forwarding.form_fields import FORM_FIELDS
from gateway.forwarding.proxy import AUDIT_DETAILS, relay
from gateway.operations import CATALOG
from gateway.routing.target import Target

ID_LIMIT = 128  # characters of a package id


async def check_names(request: web.Request, caller: Caller, target: Target) -> web.StreamResponse:
    """Forward a form whose names of packages exist, unless it allows unknown ones.

    Raises UpstreamProblem, Unavailable, InvalidRequest or BodyTooLarge.
    """
    form = await _read_form(request, target)
    package_ids = form.texts("package_ids", limit=ID_LIMIT)
    if package_ids and not flag("allow_unknown", form.get("allow_unknown") or "false"):
        request[AUDIT_DETAILS] = audit_details(package_ids=package_ids)
        await request.app[SERVICES][CATALOG].json(caller, "check_names", {"package_ids": package_ids})
    return await _send(request, caller, target, form)


async def _read_form(request: web.Request, target: Target) -> Form:
    form = await read_form(request, limit=target.operation.body_limit)
    request.app[FORM_FIELDS].check(target.operation, [*form.fields, *form.files])
    return form


async def _send(request: web.Request, caller: Caller, target: Target, form: Form) -> web.StreamResponse:
    """Send the form's fields to the operation's service, and its response to the caller."""
    operation, headers = target.operation, {"Content-Type": URLENCODED}
    data = urlencode([(name, value) for name, values in form.fields.items() for value in values]).encode()
    async with request.app[SERVICES][operation.service].open(
        caller,
        operation.method,
        target.segments,
        operation=operation.name,
        headers=headers,
        data=data,
        timeout=operation.timeout,
    ) as response:
        return await relay(request, response)
