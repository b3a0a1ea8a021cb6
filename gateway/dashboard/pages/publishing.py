"""Publishing from a browser: files on their way, and the form that makes a version of one that is there."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from gateway.app_keys import STATIC_FILES
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.paging import listed, part_of

SUFFIXES = (
    ".exe",
    ".msi",
    ".msix",
    ".appx",
    ".msixbundle",
    ".appxbundle",
    ".zip",
    ".ttf",
    ".otf",
    ".ttc",
    ".otc",
    ".fnt",
)
SWITCH = "switch_"

ASKED = ("name", "package")
LOOKS = 40  # that a page takes by itself, each a little later than the one before: three minutes in all


async def show(visit: PageRequest) -> web.Response:
    """The page that takes files, and lists those of which no version is made yet, the newest first."""
    uploads = await visit.ask("get_finished_uploads")
    return visit.render(
        "publish.html",
        part=await part_of(visit.request, listed(uploads[::-1])),
        suffixes=SUFFIXES,
        package_id=visit.request.query.get("package", ""),
    )


async def show_version(visit: PageRequest, server_filename: str) -> web.Response:
    """The form of a version, filled with what its file says of itself. Raises Answered where there is no such file."""
    query = visit.request.query
    asked = {name: query.get(name, "") for name in ASKED}
    file = await visit.ask("inspect_upload", server_filename)
    return visit.render(
        "publish_version.html",
        file=file,
        name=asked["name"],
        package_id=asked["package"],
        by_hand="by_hand" in query,
        at=partial(_address, visit, server_filename, asked),
        looks=_looks(query.get("looks", "0")),
        most_looks=LOOKS,
        suggested=_suggested(file),
        switches=_switches(visit.request),
        values=_values(visit.request),
    )


def _address(visit: PageRequest, server_filename: str, asked: Mapping[str, str], **more: int) -> str:
    """The form of the same file, asked for in another way."""
    query = urlencode({name: value for name, value in {**asked, **more}.items() if value})
    return f"{visit.home}/publish/{quote(server_filename)}{'?' if query else ''}{query}"


def _looks(text: str) -> int:
    """How often the page has looked whether the file is read."""
    return int(text) if text.isdecimal() and len(text) < 4 else 0


def _suggested(file: Mapping[str, Any]) -> str:
    """An id as winget's own packages have them, such as `Mozilla.Firefox`; "" where the file names neither part."""
    parts = ["".join(filter(str.isalnum, file[name])) for name in ("package_publisher", "package_name")]
    return ".".join(parts) if all(parts) else ""


def _switches(request: web.Request) -> list[str]:
    """The names of an installer's switches, after the word that their fields begin with."""
    fields = _schemas(request)["VersionFields"]["properties"]
    return [name.removeprefix(SWITCH) for name in fields if name.startswith(SWITCH)]


def _values(request: web.Request) -> Mapping[str, list[str]]:
    """The values that fields may have."""
    schemas = _schemas(request)
    return {name: schemas[name]["enum"] for name in ("Architecture", "FileType", "Locale", "Scope")}


def _schemas(request: web.Request) -> Any:
    """What the interface's own description says of its fields."""
    document: Any = request.app[STATIC_FILES].document
    return document["components"]["schemas"]
