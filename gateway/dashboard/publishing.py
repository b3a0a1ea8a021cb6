"""Publishing from a browser: files on their way, and the form that makes a version of one that is there."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from gateway.dashboard.visits import Visit
from gateway.keys import PAGES

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
SWITCHES = (
    "Silent",
    "SilentWithProgress",
    "Interactive",
    "InstallLocation",
    "Log",
    "Upgrade",
    "Custom",
    "Repair",
)


async def show(visit: Visit) -> web.Response:
    """The page that takes files, and lists those of which no version is made yet, the newest first."""
    uploads = await visit.ask("get_finished_uploads")
    return visit.render(
        "publish.html",
        uploads=uploads[::-1],
        suffixes=SUFFIXES,
        package_id=visit.request.query.get("package", ""),
    )


async def show_version(visit: Visit, server_filename: str) -> web.Response:
    """The form of a version, filled with what its file says of itself. Raises Answered where there is no such file."""
    query = visit.request.query
    file = await visit.ask("inspect_upload", server_filename)
    return visit.render(
        "publish_version.html",
        file=file,
        name=query.get("name", ""),
        by_hand="by_hand" in query,
        package_id=query.get("package", ""),
        suggested=_suggested(file),
        switches=SWITCHES,
        values=_values(visit.request),
    )


def _suggested(file: Mapping[str, Any]) -> str:
    """An id as winget's own packages have them, such as `Mozilla.Firefox`; "" where the file names neither part."""
    parts = ["".join(filter(str.isalnum, file[name])) for name in ("package_publisher", "package_name")]
    return ".".join(parts) if all(parts) else ""


def _values(request: web.Request) -> Mapping[str, list[str]]:
    """The values that fields may have, as the interface's own description has them."""
    document: Any = request.app[PAGES].document
    schemas = document["components"]["schemas"]
    return {name: schemas[name]["enum"] for name in ("Architecture", "FileType", "Locale", "Scope")}
