"""A package and its versions: what they say, what winget makes of them, and how they are changed."""

import asyncio
import re
from collections.abc import Mapping, Set
from typing import Any

from aiohttp import web

from common.errors import NotFound
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.paging import listed, part_of

# What the pages show in words of their own; the rest is listed by the names of the forms' fields.
OF_PACKAGES = frozenset(
    {"package_id", "package_name", "package_publisher", "package_description", "package_active", "package_logo"}
)
OF_VERSIONS = frozenset(
    {
        "uid",
        "package_id",
        "package_version",
        "channel",
        "file_architect",
        "file_type",
        "file_scope",
        "package_locale",
        "winget_refusals",
    }
)
# A word to every shell; one with a dash first PowerShell would break at its dots.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# What means something between PowerShell's quotes, some of them quotes too.
_MEANT = re.compile("[$`\u201c\u201d\u201e]")


async def show(visit: PageRequest, package_id: str) -> web.Response:
    """The page of a package."""
    package, versions = await asyncio.gather(
        visit.ask("get_package_details", package_id), visit.ask("get_package_versions", package_id)
    )
    return visit.render(
        "package.html",
        package=package,
        part=await part_of(visit.request, listed(versions)),
        said=_said(package, OF_PACKAGES),
        command=install_command(package_id, visit.caller.tenant_id),
    )


async def show_version(visit: PageRequest, package_id: str, uid: str) -> web.Response:
    """The page of a version. Raises NotFound where it is another package's."""
    details, version = await asyncio.gather(
        visit.ask("get_version_details", uid), visit.ask("get_specific_package_version", uid)
    )
    if version["PACKAGE_ID"] != package_id:
        raise NotFound("The package has no such version.", reason="other_packages_version")
    return visit.render("version.html", details=details, version=version, said=_said(details, OF_VERSIONS))


def _said(details: Mapping[str, Any], known: Set[str]) -> dict[str, Any]:
    """The fields that say something, without those that are known."""
    return {name: value for name, value in details.items() if name not in known and value not in ("", [], False)}


def install_command(package_id: str, tenant_id: str) -> str:
    """What installs a package, as one types it in PowerShell.

    cmd takes the same for every id without `$`, backticks, curly quotes and `%`. For those there is nothing that both
    take, but cmd runs nothing of them: no id has a `"`, so all of it stands between the quotes.
    """
    quoted = '"' + _MEANT.sub(r"`\g<0>", package_id) + '"'
    word = package_id if _PLAIN.fullmatch(package_id) else quoted
    return f"winget install --id {word} --source {tenant_id}"
