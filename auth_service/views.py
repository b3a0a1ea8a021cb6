"""How tenants, users and audit entries look on the wire."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web

from auth_service.audit.chain import Link
from auth_service.model import User
from auth_service.tenants.usage import Usage
from common.mongo import MongoError
from common.telemetry import log
from common.tenants import Tenant

BLOCK = 64 << 10  # bytes of an export that are sent at once


def tenant(found: Tenant) -> dict[str, Any]:
    """The answer of the internal `find_tenant`."""
    return {
        "tenant_id": found.tenant_id,
        "client_authentication": found.client_authentication,
        "allowed_networks": found.allowed_networks,
        "storage_quota": found.storage_quota,
        "max_clients": found.max_clients,
        "version_key": found.version_key,
        "strict_installers": found.strict_installers,
        "source_agreements": found.source_agreements,
    }


def server_information(found: Tenant, usage: Usage, software_version: str) -> dict[str, Any]:
    return {
        "tenant_id": found.tenant_id,
        "software_version": software_version,
        "storage_used": usage.storage_used,
        "storage_reserved": usage.storage_reserved,
        "storage_quota": found.storage_quota,
        "damaged_installers": usage.damaged_installers,
        "clients": usage.clients,
        "max_clients": found.max_clients,
        "settings": {
            "client_authentication": found.client_authentication,
            "allowed_networks": found.allowed_networks,
            "version_key": found.version_key,
            "strict_installers": found.strict_installers,
            "source_agreements": orjson.loads(found.source_agreements or b"[]"),
        },
    }


def user(found: User) -> dict[str, Any]:
    return {"username": found.username, "created_at": found.created_at}


async def send_lines(request: web.Request, links: AsyncIterator[Link | None]) -> web.StreamResponse:
    """Answer with these entries of the audit log as JSON lines, however many they are."""
    first = await anext(links, None)  # A database that is away is told while there is a status to tell it by.
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(request)
    block = _line(first)
    try:
        async for link in links:
            block += _line(link)
            if len(block) >= BLOCK:
                await response.write(block)
                block = b""
        await response.write(block)
        await response.write_eof()
    except MongoError as error:
        # The status is out already: a broken connection is the only way left to say that this is not all.
        log.error("export_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


def _line(link: Link | None) -> bytes:
    return orjson.dumps(audit_entry(link), option=orjson.OPT_APPEND_NEWLINE) if link else b""


def audit_entry(link: Link) -> dict[str, Any]:
    """What is sealed, and the seal: an entry of the interface and a line of an export."""
    return {**link.told(), "hash": link.hash}
