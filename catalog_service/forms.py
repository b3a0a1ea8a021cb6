"""What requests say, as values that cannot be wrong (sections 4.3 to 4.5, and the decisions on text)."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

from aiohttp import web

from catalog_service.app_keys import LOGOS
from catalog_service.logos.limits import LOGO_LIMIT
from catalog_service.model.manifest.fields import manifest_of, of_form, plain
from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.packages import Package, PackageChanges, PackageNotFound, VersionNotFound
from catalog_service.packages.search import Order, Wanted
from catalog_service.packages.service import DescribedPackage
from common.errors import InvalidField
from common.http.bodies import FORM_LIMIT
from common.http.forms import Form, clean, flag, query_form, read_form
from common.http.middleware import caller_of

ID_LIMIT = 128  # characters, of these four
NAME_LIMIT = 256
DESCRIPTION_LIMIT = 10_000
PAGE, PAGE_LIMIT = 50, 100  # packages
PACKAGE_FORM_LIMIT = LOGO_LIMIT + FORM_LIMIT  # bytes
CONNECTION_CHECK = 0.2  # seconds

_NOT_IN_IDS = frozenset('/\\:*?"<>|,')  # A comma stands between ids, in a blacklist entry for one.
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def new_package(request: web.Request) -> DescribedPackage:
    """The package that `add_package` is to make.

    Raises:
        InvalidField: a field is missing or not allowed.
        Overloaded: other logos are decoded now.
        ConnectionError: the caller closed the connection while the logo was decoded.
    """
    form = await read_form(request, limit=PACKAGE_FORM_LIMIT)
    return package_of(form, await _logo(request, form) or b"")


def package_of(form: Form, logo: bytes) -> DescribedPackage:
    """The package that a form describes. Raises InvalidField."""
    package = Package(
        package_id=package_id(form.text("package_id", limit=ID_LIMIT)),
        package_uid=str(uuid4()),
        name=form.text("package_name", limit=NAME_LIMIT),
        publisher=form.text("package_publisher", limit=NAME_LIMIT),
        description=form.text("package_description", limit=DESCRIPTION_LIMIT, required=False, lines=True),
        logo=logo,
    )
    return DescribedPackage(package, manifest_of(PackageManifest, form))


async def package_changes(request: web.Request) -> PackageChanges:
    """The changes that `edit_package` makes: the fields that are sent. Raises the same errors as `new_package`."""
    form = await read_form(request, limit=PACKAGE_FORM_LIMIT)
    return PackageChanges(
        name=_sent(form, "package_name", NAME_LIMIT),
        publisher=_sent(form, "package_publisher", NAME_LIMIT),
        description=_sent(form, "package_description", DESCRIPTION_LIMIT, required=False, lines=True),
        logo=await _logo(request, form),
        manifest=plain(of_form(PackageManifest, form)),
    )


def package_id(text: str) -> str:
    """A package id that may be given to a package. Raises InvalidField."""
    name = clean("package_id", text, limit=ID_LIMIT)
    if name in {"", ".", ".."} or name != name.strip() or _NOT_IN_IDS.intersection(name):
        message = 'must not be . or .., hold / \\ : * ? " < > | , or begin or end with a space'
        raise InvalidField("package_id", message, reason="not_a_package_id")
    return name


def package_in_path(request: web.Request) -> str:
    """The package that a path names. Raises PackageNotFound where no package can have that id."""
    named = request.match_info["package_id"]
    try:
        return package_id(named)
    except InvalidField:
        raise PackageNotFound(named) from None


def uid_in_path(request: web.Request) -> str:
    """The version that a path names. Raises VersionNotFound where it is not a UUID."""
    return _uid(request.match_info["version_uid"])


def listed_uids(form: Form) -> tuple[str, ...]:
    """The versions that `delete_package_version` is to delete, each once.

    Raises:
        InvalidField: none is named.
        VersionNotFound: one is not a UUID.
    """
    listed = form.texts("versions_uids", limit=ID_LIMIT)
    if not listed:
        raise InvalidField("versions_uids", "is required", reason="required")
    return tuple(dict.fromkeys(_uid(text) for text in listed))


def include_disabled(request: web.Request) -> bool:
    """Whether the catalog is to show inactive packages; not unless asked (section 4.2). Raises InvalidField."""
    return flag("include_disabled", request.query.get("include_disabled", "false"))


def wanted_packages(request: web.Request) -> Wanted:
    """Which packages `find_packages` is to find. Raises InvalidField."""
    query = query_form(request)
    return Wanted(
        text=query.text("text", limit=NAME_LIMIT, required=False),
        active=query.flag("active") if query.get("active") else None,
        order=query.choice("sort", Order, default=Order.ID),
        descending=flag("descending", query.get("descending") or "false"),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT),
    )


def _uid(text: str) -> str:
    if not _UUID.fullmatch(text.lower()):
        raise VersionNotFound(text)
    return text.lower()


def _sent(form: Form, name: str, limit: int, *, required: bool = True, lines: bool = False) -> str | None:
    return form.text(name, limit=limit, required=required, lines=lines) if name in form.fields else None


async def _logo(request: web.Request, form: Form) -> bytes | None:
    """The logo, or None where there is none: browsers send an empty file where none was chosen."""
    for name in ("Logo", "logo"):
        if image := form.files.get(name):
            decoding = request.app[LOGOS].decode(caller_of(request).tenant_id, "Logo", image)
            return await _while_connected(request, decoding)
        if form.get(name):
            raise InvalidField("Logo", "must be a file", reason="not_a_file")
    return None


async def _while_connected(request: web.Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of `work`, which is cancelled when the caller closes the connection. Raises ConnectionError then."""
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
