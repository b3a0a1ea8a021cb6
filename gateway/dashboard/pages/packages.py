"""The pages of packages and versions, of retention, of uploads, and the form of a new version."""

import asyncio
import re
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from aiohttp import web
from yarl import URL

from common.errors import NotFound
from gateway.dashboard.page_request import PageRequest, or_none, paginate, paginate_list, paginate_operation, with_query
from gateway.dashboard.pages import releases
from gateway.dashboard.static_files import STATIC_FILES
from gateway.forwarding.proxy import SERVICES
from gateway.operations import UPLOAD

PAGE_SIZE = 50  # packages
PREVIEW_LIMIT = 500  # versions of each step
CHECKED_FIELDS = (
    *("package_id", "package_version", "file_type", "file_type_nested", "file_nested_path"),
    *("productcode", "upgradecode", "package_family_name", "package_name"),
)
QUERY = ("text", "active", "sort", "descending")
# The pages have labels for these fields; they list all other fields by their names in the interface.
PACKAGE_FIELDS = frozenset(
    {
        "revision",
        "package_id",
        "package_name",
        "package_publisher",
        "package_description",
        "package_active",
        "package_logo",
    }
)
VERSION_FIELDS = frozenset(
    {"uid", "package_id", "package_version", "channel", "file_architect", "file_type", "file_scope", "package_locale"}
    | {"revision", "winget_refusals", "shared_identities", "size", "published_at", "published_by"}
)
# A word in every shell. PowerShell splits a word that begins with a dash at its dots.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SPECIAL_IN_QUOTES = re.compile("[$`\u201c\u201d\u201e]")  # PowerShell takes the last three for quotes.
FONT_SUFFIXES = (".ttf", ".otf", ".ttc", ".otc", ".fnt")
SUFFIXES = ",".join((".exe", ".msi", ".msix", ".appx", ".msixbundle", ".appxbundle", ".zip", *FONT_SUFFIXES))
SWITCH_PREFIX = "switch_"
# Beginnings of the names of fields that are the same for the versions of a package.
COPIED = ("file_scope", "package_locale", SWITCH_PREFIX, "dep_", "commands")
MAX_POLLS = 40  # by a page, each a little later than the one before: three minutes in all


async def show_check(page: PageRequest) -> web.Response:
    """The reasons why winget would refuse or confuse the fields in the query, of a form for a package or version."""
    query = page.request.query
    fields = {name: query[name] for name in CHECKED_FIELDS if name in query}
    check = await page.fetch("check_version", **fields)
    return page.render("check.html", refusals=check["winget_refusals"], shared=check["shared_identities"])


async def show_packages(page: PageRequest) -> web.Response:
    """The page. The query has the filter and the order of `find_packages`."""
    query = {name: page.request.query.get(name, "") for name in QUERY}

    def url_with(**changes: str) -> str:
        """The first part of this list with changes to its query."""
        return with_query(f"{page.home}/packages", {**query, **changes})

    part = await paginate_operation(page, "find_packages", "packages", size=PAGE_SIZE, **query)
    return page.render("packages.html", part=part, query=query, url_with=url_with)


async def show_retention(page: PageRequest) -> web.Response:
    """The versions that are deleted next, then those that are hidden with the next run."""
    preview = await page.fetch("preview_retention", limit=str(PREVIEW_LIMIT))
    part = await paginate_list(page.request, [*preview["retired"], *preview["versions"]])
    is_cut = part.total < preview["total"] + preview["retired_total"]
    return page.render("retention.html", preview=preview, part=part, is_cut=is_cut)


async def show_package(page: PageRequest, package_id: str) -> web.Response:
    """The page of a package."""
    refusal = ""

    async def fetch_versions(offset: int, limit: int) -> tuple[Sequence[Any], int]:
        nonlocal refusal
        versions = await page.fetch("find_versions", package_id, offset=str(offset), limit=str(limit))
        refusal = versions["winget_refusal"]
        return versions["versions"], versions["total"]

    package, part = await asyncio.gather(
        page.fetch("get_package_details", package_id), paginate(page.request, fetch_versions)
    )
    uids = [version["uid"] for version in part.items]
    stages, checks = await asyncio.gather(
        releases.fetch_in_flight(page, package_id=package_id, state="all", version_uid=",".join(uids)),
        or_none(page.request.app[SERVICES][UPLOAD].json(page.caller, "installer_checks", {"version_uids": uids})),
    )
    by_uid = {release["uid"]: release for release in stages}
    return page.render(
        "package.html",
        package=package,
        part=part,
        releases=by_uid,
        checks=checks["installers"] if checks else {},
        is_infected=releases.is_infected,
        winget_refusal=refusal,
        expires=_expiry(part.items[0]["download_url"]) if part.items else "",
        metadata=_other_fields(package, PACKAGE_FIELDS),
        command=install_command(package_id, page.caller.tenant_id)
        if not refusal
        and package["package_active"] == "1"
        and any(_may_be_installed(version, by_uid.get(version["uid"])) for version in part.items)
        else "",
    )


def _may_be_installed(version: Mapping[str, Any], release: releases.Release | None) -> bool:
    """Whether winget shows a version to the machines of any ring; `release` is None for one that is in all rings."""
    is_offered = release is None or any(ring["offered"] for ring in release["rings"])
    return version["channel"] == "stable" and not version["winget_refusals"] and is_offered


async def show_version(page: PageRequest, package_id: str, uid: str) -> web.Response:
    """The page of a version. Raises NotFound for a version of another package.

    With `copy` in the query, the form has the fields of that version of the package; nothing is saved.
    """
    copied = page.request.query.get("copy", "")
    package, details, version, others, release, checks = await asyncio.gather(
        page.fetch("get_package_details", package_id),
        page.fetch("get_version_details", uid),
        page.fetch("get_specific_package_version", uid),
        page.fetch("find_versions", package_id, limit=str(PAGE_SIZE)),
        page.fetch("get_release", uid),
        or_none(page.request.app[SERVICES][UPLOAD].json(page.caller, "installer_checks", {"version_uids": [uid]})),
    )
    source = await page.fetch("get_version_details", copied) if copied else details
    if {version["PACKAGE_ID"], source["package_id"]} != {package_id}:
        raise NotFound("The package has no such version.", reason="other_packages_version")
    is_active = package["package_active"] == "1"
    is_in_winget = is_active and not others["winget_refusal"] and _may_be_installed(details, release)
    document: Any = page.request.app[STATIC_FILES].document
    schemas = document["components"]["schemas"]
    return page.render(
        "version.html",
        details=details,
        form={**details, **{name: value for name, value in source.items() if name.startswith(COPIED)}},
        copied=source if copied else None,
        others=[other for other in others["versions"] if other["uid"] != uid],
        values={name: schemas[name]["enum"] for name in ("Locale", "Scope")},
        version=version,
        release=release,
        **await releases.template_values(page),
        checks=checks and checks["installers"].get(uid),
        expires=_expiry(version["INSTALLER_URL"]),
        is_in_winget=is_in_winget,
        command=install_command(package_id, page.caller.tenant_id) if is_in_winget else "",
        metadata=_other_fields(details, VERSION_FIELDS),
    )


def _expiry(url: str) -> str:
    """The time in ISO 8601 until which a signed address is valid; "" for an address without one."""
    expires = URL(url).query.get("expires", "")
    is_signed = "signature" in URL(url).query and expires.isascii() and expires.isdecimal() and len(expires) <= 10
    return datetime.fromtimestamp(int(expires), UTC).isoformat() if is_signed else ""


def _other_fields(details: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name not in names and value not in ("", [], [""], False)}


def install_command(package_id: str, tenant_id: str) -> str:
    """The command that installs a package, for PowerShell.

    cmd accepts it for every id without `$`, backticks, curly quotes and `%`. No quoting of these works in both shells.
    cmd never runs a part of an id: an id has no `"`, so all of it stays inside the quotes.
    """
    quoted = '"' + _SPECIAL_IN_QUOTES.sub(r"`\g<0>", package_id) + '"'
    word = package_id if _PLAIN.fullmatch(package_id) else quoted
    return f"winget install --id {word} --source {tenant_id}"


async def show_publish(page: PageRequest) -> web.Response:
    """The page for uploads, with the unassigned uploads, newest first."""
    uploads = await page.fetch("get_finished_uploads")
    package_id = page.request.query.get("package", "")

    def form_of(server_filename: str, name: str) -> str:
        """The address of an upload's form as a row of this page."""
        path = f"{page.home}/publish/{quote(server_filename)}"
        return with_query(path, {"name": name, "package": package_id, "row": 1})

    part = await paginate_list(page.request, uploads[::-1])
    return page.render("publish.html", part=part, suffixes=SUFFIXES, package_id=package_id, form_of=form_of)


async def show_version_form(page: PageRequest, server_filename: str) -> web.Response:
    """The form of a new version, filled with the metadata of its file. Raises UpstreamProblem without such a file.

    With `row` in the query, it is a row of the page for uploads.
    """
    query, path = page.request.query, f"{page.home}/publish/{quote(server_filename)}"
    name, package_id, row = (query.get(part, "") for part in ("name", "package", "row"))

    def url_with(**changes: int) -> str:
        """The address of this form with changes to its query."""
        return with_query(path, {"name": name, "package": package_id, "row": row, **changes})

    file = await page.fetch("inspect_upload", server_filename)
    document: Any = page.request.app[STATIC_FILES].document
    schemas = document["components"]["schemas"]
    fields, polls = schemas["VersionFields"]["properties"], query.get("polls", "0")
    switches = [field.removeprefix(SWITCH_PREFIX) for field in fields if field.startswith(SWITCH_PREFIX)]
    return page.render(
        "publish_version.html",
        file=file,
        name=name,
        package_id=package_id,
        is_row=bool(row),
        is_infected=releases.is_infected,
        by_hand="by_hand" in query,
        is_unrecognised=_is_unrecognised(file),
        url_with=url_with,
        polls=int(polls) if polls.isdecimal() and len(polls) < 4 else 0,
        max_polls=MAX_POLLS,
        suggested_id=_suggested_id(file),
        switches=[name for name in switches if name != "Silent"],
        values={schema: schemas[schema]["enum"] for schema in ("Architecture", "FileType", "Locale", "Scope")},
    )


def _is_unrecognised(file: Mapping[str, Any]) -> bool:
    """Whether an inspected file is no known installer. Fonts are not recognised by their content."""
    is_font = PurePath(file["server_filename"]).suffix in FONT_SUFFIXES
    return file["state"] != "waiting" and not file["file_type"] and not is_font


def _suggested_id(file: Mapping[str, Any]) -> str:
    """A package id in the style of winget, such as `Mozilla.Firefox`; "" if the file lacks the name or publisher."""
    parts = ["".join(filter(str.isalnum, file[name])) for name in ("package_publisher", "package_name")]
    return ".".join(parts) if all(parts) else ""
