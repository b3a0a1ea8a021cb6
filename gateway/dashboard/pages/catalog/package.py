"""The pages of a package and of one of its versions."""

import asyncio
import re
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from yarl import URL

from common.errors import NotFound
from gateway.app_keys import SERVICES
from gateway.dashboard.languages import _
from gateway.dashboard.page_request import PageRequest, or_none
from gateway.dashboard.pages.catalog import releases
from gateway.dashboard.pagination import paginate
from gateway.operations import UPLOAD

# The pages have labels for these fields; they list all other fields by their names in the interface.
PACKAGE_FIELDS = frozenset(
    {"package_id", "package_name", "package_publisher", "package_description", "package_active", "package_logo"}
)
VERSION_FIELDS = frozenset(
    {"uid", "package_id", "package_version", "channel", "file_architect", "file_type", "file_scope", "package_locale"}
    | {"winget_refusals", "shared_identities", "size", "published_at", "published_by"}
)
# The verdicts of upload_service about a file. Without a scanner, a scan is `off`.
SCANS: Mapping[str, str] = {
    "pending": _("not checked yet"),
    "clean": _("clean"),
    "infected": _("infected"),
    "too_large": _("too large to check"),
    "failed": _("the check failed"),
    "off": _("not checked"),
}
SIGNATURES: Mapping[str, str] = {
    "pending": _("not checked yet"),
    "valid": _("valid"),
    "unsigned": _("not signed"),
    "invalid": _("invalid"),
    "untrusted": _("not trusted"),
    "expired": _("expired"),
    "unsupported": _("not checked"),
}
# A word in every shell. PowerShell splits a word that begins with a dash at its dots.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SPECIAL_IN_QUOTES = re.compile("[$`\u201c\u201d\u201e]")  # PowerShell takes the last three for quotes.


async def show(page: PageRequest, package_id: str) -> web.Response:
    """The page of a package."""
    refusal = ""

    async def fetch_versions(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        nonlocal refusal
        versions = await page.fetch("find_versions", package_id, offset=str(offset), limit=str(limit))
        refusal = versions["winget_refusal"]
        return versions["versions"], versions["total"]

    package, part, stages = await asyncio.gather(
        page.fetch("get_package_details", package_id),
        paginate(page.request, fetch_versions),
        releases.fetch_in_flight(page, package_id=package_id),
    )
    return page.render(
        "package.html",
        package=package,
        part=part,
        releases={release["uid"]: release for release in stages},
        winget_refusal=refusal,
        expires=_expiry(part.items[0]["download_url"]) if part.items else "",
        metadata=_other_fields(package, PACKAGE_FIELDS),
        command="" if refusal else install_command(package_id, page.caller.tenant_id),
    )


async def show_version(page: PageRequest, package_id: str, uid: str) -> web.Response:
    """The page of a version. Raises NotFound for a version of another package."""
    details, version, release, checks = await asyncio.gather(
        page.fetch("get_version_details", uid),
        page.fetch("get_specific_package_version", uid),
        page.fetch("get_release", uid),
        or_none(page.request.app[SERVICES][UPLOAD].json(page.caller, "installer_checks", {"version_uids": [uid]})),
    )
    if version["PACKAGE_ID"] != package_id:
        raise NotFound("The package has no such version.", reason="other_packages_version")
    return page.render(
        "version.html",
        details=details,
        version=version,
        release=release,
        **releases.template_values(page),
        checks=checks and checks["installers"].get(uid),
        scans=SCANS,
        signatures=SIGNATURES,
        expires=_expiry(version["INSTALLER_URL"]),
        metadata=_other_fields(details, VERSION_FIELDS),
    )


def _expiry(url: str) -> str:
    """The time in ISO 8601 until which a signed address is valid; "" for an address without one."""
    expires = URL(url).query.get("expires", "")
    is_signed = "signature" in URL(url).query and expires.isascii() and expires.isdecimal() and len(expires) <= 10
    return datetime.fromtimestamp(int(expires), UTC).isoformat() if is_signed else ""


def _other_fields(details: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name not in names and value not in ("", [], False)}


def install_command(package_id: str, tenant_id: str) -> str:
    """The command that installs a package, for PowerShell.

    cmd accepts it for every id without `$`, backticks, curly quotes and `%`. No quoting of these works in both shells.
    cmd never runs a part of an id: an id has no `"`, so all of it stays inside the quotes.
    """
    quoted = '"' + _SPECIAL_IN_QUOTES.sub(r"`\g<0>", package_id) + '"'
    word = package_id if _PLAIN.fullmatch(package_id) else quoted
    return f"winget install --id {word} --source {tenant_id}"
