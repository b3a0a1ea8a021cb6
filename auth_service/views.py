"""The response bodies of auth_service."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web

from auth_service.audit.model import ChainedEntry
from auth_service.tokens.model import Token
from auth_service.users.model import User
from common.mongo import MongoError
from common.telemetry import log

BLOCK = 64 << 10  # bytes of an export that are sent at once


def user(user: User) -> dict[str, Any]:
    shown = {"username": user.username, "created_at": user.created_at, "role": user.roles}
    if not user.issuer:
        return {**shown, "login": "password", "break_glass": user.is_break_glass}
    return {**shown, "login": "company", "name": user.name, "email": user.email}


def token(token: Token) -> dict[str, Any]:
    grant = token.grant
    rights = {"role": grant.roles, "package_ids": grant.packages, "networks": grant.networks}
    dates = {name: getattr(token, name) for name in ("created_by", "created_at", "expires_at", "last_used")}
    return {"token_id": token.token_id, "name": grant.name, **rights, **dates}


async def send_json_lines(request: web.Request, entries: AsyncIterator[ChainedEntry | None]) -> web.StreamResponse:
    """Stream any number of entries of the audit log as JSON lines."""
    first = await anext(entries, None)  # A database error here still gets a status.
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(request)
    block = _line(first)
    try:
        async for entry in entries:
            block += _line(entry)
            if len(block) >= BLOCK:
                await response.write(block)
                block = b""
        await response.write(block)
        await response.write_eof()
    except MongoError as error:
        # The status is sent already: only a broken connection shows that the export is incomplete.
        log.error("export_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


def _line(entry: ChainedEntry | None) -> bytes:
    return orjson.dumps(entry.exported(), option=orjson.OPT_APPEND_NEWLINE) if entry else b""
