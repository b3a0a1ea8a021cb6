"""The one-call form of an operation: store the installer of the form, then execute the operation with its other fields.

upload_service gets the multipart body unchanged. It returns the fields and the name of the stored file, which make the
two-step request. So creating a version means the same in both forms.
"""

from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.errors import Problem
from common.http.forms import URLENCODED
from common.http.zero_copy.request_bodies import CallerBody
from common.service_client.client import ServiceClient, json_of
from common.telemetry import log
from gateway.forwarding.form_fields import FORM_FIELDS
from gateway.forwarding.proxy import relay
from gateway.routing.target import Target


async def one_call(
    request: web.Request, upload_service: ServiceClient, service: ServiceClient, caller: Caller, target: Target
) -> web.StreamResponse:
    """Store the file, then create; discard the file if creating is refused.

    Raises UpstreamProblem, Unavailable, or InvalidRequest if the caller's body broke off or has an unknown field.
    """
    stored = await _store(request, upload_service, caller, target)
    fields, server_filename = [*map(tuple, stored["fields"])], stored["server_filename"]
    if server_filename:
        fields.append(("server_filename", server_filename))
    headers, form = {"Content-Type": URLENCODED}, urlencode(fields).encode()
    try:
        request.app[FORM_FIELDS].check(target.operation, [name for name, _ in fields])
        async with service.open(
            caller, request.method, target.segments, headers=headers, data=form, timeout=target.operation.timeout
        ) as response:
            return await relay(request, response)
    except Problem:
        if server_filename:
            await _discard(upload_service, caller, server_filename)
        raise


async def _discard(upload_service: ServiceClient, caller: Caller, server_filename: str) -> None:
    try:
        await upload_service.json(caller, "discard_installer", {"server_filename": server_filename})
    except Problem as problem:
        # The caller gets the first problem; the collector removes the file within a day.
        log.warning("installer_not_discarded", server_filename=server_filename, detail=problem.detail)


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
