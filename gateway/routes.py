"""How every request travels: address → tenant → network → caller → the service that owns the operation."""

import json

from aiohttp import web

from common.caller import Caller
from common.errors import InvalidRequest, Problem
from common.middleware import CALLER, ROUTE, json_response
from common.telemetry import log, request_id
from gateway import documentation
from gateway.addresses import Target
from gateway.composed import one_call
from gateway.keys import GATEKEEPER, SERVICES, SETTINGS, TENANTS
from gateway.operations import AUTH, UPLOAD, Access
from gateway.origin import base_url, caller_address
from gateway.proxy import forward
from gateway.tenants import check_network


async def dispatch(request: web.Request) -> web.StreamResponse:
    """Answer any request of the interface."""
    settings = request.app[SETTINGS]
    target = Target.parse(request.method, request.raw_path, settings.deployment, settings.tenant_id)
    request[ROUTE] = f"/{{tenant_id}}/{target.operation.path}"
    address = caller_address(request, settings.trusted_proxies)
    tenant = await request.app[TENANTS].find(target.tenant_id)
    check_network(tenant, address)
    visitor = Caller(
        tenant=tenant,
        ip=str(address),
        base_url=base_url(request, settings, tenant.tenant_id),
        deployment=settings.deployment,
    )
    request[CALLER] = visitor  # for the log
    caller = await request.app[GATEKEEPER].identify(request, target.operation, visitor)
    target.check_complete()
    if target.operation.access is Access.PAGE:
        return await documentation.page(request, caller, target)
    if target.operation.word == "test":
        return json_response({"Message": "Its working!"})
    response, written = await _answer(request, caller, target)
    if target.operation.audited and response.status < 400:
        await _record(request, caller, target, response.status, written)
    return response


async def _answer(request: web.Request, caller: Caller, target: Target) -> tuple[web.StreamResponse, str | None]:
    services = request.app[SERVICES]
    service = services[target.operation.service]
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise InvalidRequest("A compressed body is not accepted.")
    if target.operation.one_call and request.content_type == "multipart/form-data":
        return await one_call(request, services[UPLOAD], service, caller, target)
    # A client's form was read to know the client; its service learns the caller, not the token.
    with_body = target.operation.access is not Access.CLIENT
    return await forward(request, service, caller, target, with_body=with_body)


async def _record(request: web.Request, caller: Caller, target: Target, status: int, written: str | None) -> None:
    """Tell the audit log of a write that is done; a log that is away does not undo it, and is told in our own."""
    entry = {
        "operation": target.operation.word,
        "user": caller.username,
        "ip": caller.ip,
        "target": json.loads(written) if written else {},
        "status": status,
        "request_id": request_id(),
    }
    try:
        await request.app[SERVICES][AUTH].ask(caller, "record_audit", entry)
    except Problem as problem:
        log.error("audit_not_recorded", entry=entry, detail=problem.detail)
