"""The pages for publishing: uploads, and the form that creates a version of an uploaded file."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from gateway.app_keys import STATIC_FILES
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pagination import paginate_list

FONT_SUFFIXES = (".ttf", ".otf", ".ttc", ".otc", ".fnt")
SUFFIXES = ",".join((".exe", ".msi", ".msix", ".appx", ".msixbundle", ".appxbundle", ".zip", *FONT_SUFFIXES))
SWITCH_PREFIX = "switch_"
MAX_POLLS = 40  # by a page, each a little later than the one before: three minutes in all


async def show(page: PageRequest) -> web.Response:
    """The page for uploads, with the unassigned uploads, newest first."""
    uploads = await page.fetch("get_finished_uploads")
    return page.render(
        "publish.html",
        part=await paginate_list(page.request, uploads[::-1]),
        suffixes=SUFFIXES,
        package_id=page.request.query.get("package", ""),
    )


async def show_version(page: PageRequest, server_filename: str) -> web.Response:
    """The form of a new version, filled with the metadata of its file. Raises UpstreamProblem without such a file."""
    query = page.request.query
    name, package_id = query.get("name", ""), query.get("package", "")

    def url_with(**changes: int) -> str:
        """The address of this form with changes to its query."""
        changed = {key: value for key, value in {"name": name, "package": package_id, **changes}.items() if value}
        return f"{page.home}/publish/{quote(server_filename)}{'?' if changed else ''}{urlencode(changed)}"

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
