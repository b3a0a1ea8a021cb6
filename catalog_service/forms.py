"""Parses and validates requests."""

import asyncio
import re
import unicodedata
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

from aiohttp import web

from catalog_service.app_keys import LOGOS
from catalog_service.logos import LOGO_LIMIT
from catalog_service.model.manifest import PackageManifest
from catalog_service.model.manifest_fields import parse_changes, parse_manifest
from catalog_service.model.packages import (
    Order,
    Package,
    PackageChanges,
    PackageNotFound,
    PackageQuery,
    VersionNotFound,
)
from catalog_service.statistics import StatisticsFormat
from common.errors import InvalidField, InvalidRequest
from common.http.bodies import FORM_LIMIT, read_json
from common.http.forms import Form, clean, flag, query_form, read_form
from common.http.middleware import caller_of

ID_LIMIT = 128  # characters, of these four
NAME_LIMIT = 256
DESCRIPTION_LIMIT = 10_000
STATISTICS_DAYS, MAX_STATISTICS_DAYS = 30, 400
PAGE, PAGE_LIMIT = 50, 100  # packages or versions
PACKAGE_FORM_LIMIT = LOGO_LIMIT + FORM_LIMIT  # bytes
CONNECTION_CHECK = 0.2  # seconds

_NOT_IN_IDS = frozenset('/\\:*?"<>|,')  # Commas separate ids, for example in blacklist entries.
# Invisible characters that are not of the category Cf, also of Unicode's reserves for more of them.
_RANGES = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000))
_INVISIBLE = frozenset(map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0, *_RANGES]))
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def new_package(request: web.Request) -> Package:
    """Return the package that `add_package` creates.

    Raises InvalidField for a missing or forbidden field, Overloaded while other logos are decoded, or ConnectionError
    if the caller closed the connection while the logo was decoded.
    """
    form = await read_form(request, limit=PACKAGE_FORM_LIMIT)
    logo = await _logo(request, form) or b""
    return Package(
        package_id=package_id(form.text("package_id", limit=ID_LIMIT)),
        package_uid=str(uuid4()),
        name=form.text("package_name", limit=NAME_LIMIT),
        publisher=form.text("package_publisher", limit=NAME_LIMIT),
        description=form.text("package_description", limit=DESCRIPTION_LIMIT, required=False, lines=True),
        logo=logo,
        manifest=parse_manifest(PackageManifest, form),
    )


async def package_changes(request: web.Request) -> PackageChanges:
    """Return the changes of `edit_package`: the fields that are sent. Raises as `new_package` does."""
    form = await read_form(request, limit=PACKAGE_FORM_LIMIT)
    return PackageChanges(
        name=_sent(form, "package_name", NAME_LIMIT),
        publisher=_sent(form, "package_publisher", NAME_LIMIT),
        description=_sent(form, "package_description", DESCRIPTION_LIMIT, required=False, lines=True),
        logo=await _logo(request, form),
        manifest=parse_changes(PackageManifest, form),
    )


def package_id(text: str) -> str:
    """Return a valid package id. Raises InvalidField."""
    name = clean("package_id", text, limit=ID_LIMIT)
    if name in {"", ".", ".."} or name != name.strip() or _NOT_IN_IDS.intersection(name):
        message = 'must not be . or .., hold / \\ : * ? " < > | , or begin or end with a space'
        raise InvalidField("package_id", message, reason="not_a_package_id")
    for character in name:
        if unicodedata.category(character) == "Cf" or character in _INVISIBLE:
            code = f"{ord(character):04X}"
            message = f"holds the character U+{code}, which is invisible"
            raise InvalidField("package_id", message, reason="bad_character", character=code)
    return name


def package_in_path(request: web.Request) -> str:
    """Return the package id of a path. Raises PackageNotFound if no package can have it."""
    text = request.match_info["package_id"]
    try:
        return package_id(text)
    except InvalidField:
        raise PackageNotFound(package_id=text) from None


async def names(request: web.Request) -> tuple[list[str], str]:
    """Return the package ids and the ring that the gateway sends; an empty text is none. Raises InvalidRequest."""
    data = await read_json(request)
    ids, ring = data.get("package_ids", []), data.get("ring", "")
    if not isinstance(ids, list) or not all(isinstance(text, str) for text in [*ids, ring]):
        raise InvalidRequest("`package_ids` must be a list of texts, `ring` a text.")
    return ids, ring


def uid_in_path(request: web.Request) -> str:
    """Return the version uid of a path. Raises VersionNotFound if it is not a UUID."""
    return _uid(request.match_info["version_uid"])


def version_uids(form: Form) -> tuple[str, ...]:
    """Return the versions that `delete_package_version` deletes, each once.

    Raises InvalidField for an empty list, and VersionNotFound for an item that is not a UUID.
    """
    uids = form.texts("versions_uids", limit=ID_LIMIT)
    if not uids:
        raise InvalidField("versions_uids", "is required", reason="required")
    return tuple(dict.fromkeys(_uid(text) for text in uids))


def include_disabled(request: web.Request) -> bool:
    """Whether the catalog shows inactive packages, by default not. Raises InvalidField."""
    return flag("include_disabled", request.query.get("include_disabled", "false"))


def package_query(request: web.Request) -> PackageQuery:
    """Return the query of `find_packages`. Raises InvalidField."""
    query = query_form(request)
    return PackageQuery(
        text=query.text("text", limit=NAME_LIMIT, required=False),
        package_ids=query.texts("package_id", limit=ID_LIMIT, most=PAGE_LIMIT),
        active=query.flag("active") if query.get("active") else None,
        order=query.choice("sort", Order, default=Order.ID),
        descending=flag("descending", query.get("descending") or "false"),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT),
    )


def statistics_query(request: web.Request) -> tuple[int, StatisticsFormat]:
    """Return the number of days and the format of `get_statistics`. Raises InvalidField."""
    query = query_form(request)
    days = query.integer("days", default=STATISTICS_DAYS, least=1, most=MAX_STATISTICS_DAYS)
    return days, query.choice("format", StatisticsFormat, default=StatisticsFormat.JSON)


def version_query(request: web.Request) -> tuple[int, int]:
    """Return the offset and the limit of `find_versions`. Raises InvalidField."""
    query = query_form(request)
    return query.integer("offset", default=0), query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT)


def _uid(text: str) -> str:
    if not _UUID.fullmatch(text.lower()):
        raise VersionNotFound(uid=text)
    return text.lower()


def _sent(form: Form, name: str, limit: int, *, required: bool = True, lines: bool = False) -> str | None:
    return form.text(name, limit=limit, required=required, lines=lines) if name in form.fields else None


async def _logo(request: web.Request, form: Form) -> bytes | None:
    """Return the logo or None. Browsers send an empty file if none was chosen."""
    for name in ("Logo", "logo"):
        if image := form.files.get(name):
            decoding = request.app[LOGOS].decode(caller_of(request).tenant_id, "Logo", image)
            return await _while_connected(request, decoding)
        if form.get(name):
            raise InvalidField("Logo", "must be a file", reason="not_a_file")
    return None


async def _while_connected(request: web.Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """Run `work`, but cancel it when the caller closes the connection. Raises ConnectionError then."""
    task = asyncio.create_task(work)
    try:
        while not task.done() and request.transport is not None:
            await asyncio.wait({task}, timeout=CONNECTION_CHECK)
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        result = task.result()
        if request.transport is not None:
            return result
    raise ConnectionResetError("The caller closed the connection.")
