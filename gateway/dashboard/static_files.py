"""The static files of all pages, read once at the start, and the document of the interface.

Browsers cache the files until the version in their address changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath

import yaml
from aiohttp import web
from isal import igzip

from common.errors import NotFound
from common.http.middleware import BytesResponse

CONTENT_TYPES = {".css": "text/css", ".js": "text/javascript", ".png": "image/png", ".svg": "image/svg+xml"}
COMPRESSIBLE = (".css", ".js", ".svg")  # A PNG is compressed already.
MAX_AGE, VERSIONED_MAX_AGE = 3600, 31_536_000  # seconds


@dataclass(frozen=True)
class Asset:
    """One file. `compressed` is its content in gzip; None if that saves nothing."""

    content: bytes
    content_type: str
    compressed: bytes | None


class StaticFiles:
    """The files of the pages. Callers cannot reach any other file. `version` is a digest of all of them."""

    def __init__(self) -> None:
        root = files("gateway")
        self.document = _openapi_document()
        vendored = [folder for folder in (root / "vendor").iterdir() if folder.is_dir()]
        folders = (root / "dashboard" / "static", *vendored)
        contents = {
            entry.name: entry.read_bytes() for folder in folders for entry in folder.iterdir() if entry.is_file()
        }
        self.docs_page = contents["docs.html"].decode()
        self._assets = {
            name: _asset(name, content) for name, content in contents.items() if PurePath(name).suffix in CONTENT_TYPES
        }
        named_contents = [name.encode() + self._assets[name].content for name in sorted(self._assets)]
        self.version = sha256(b"".join(named_contents)).hexdigest()[:12]

    def asset(self, name: str) -> Asset:
        """A script, style or picture. Raises NotFound."""
        if name not in self._assets:
            raise NotFound("There is no such file.")
        return self._assets[name]


STATIC_FILES = web.AppKey("static_files", StaticFiles)


def _asset(name: str, content: bytes) -> Asset:
    compressed = igzip.compress(content) if name.endswith(COMPRESSIBLE) else None
    return Asset(content, CONTENT_TYPES[PurePath(name).suffix], compressed)


@cache
def _openapi_document() -> Mapping[str, object]:
    # Parsing takes most of a gateway's start: the document is long.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # A build without libyaml has only the slow one.
    text = (files("gateway") / "openapi.yaml").read_text(encoding="utf-8")
    document: Mapping[str, object] = yaml.load(text, loader)  # noqa: S506  # Both are safe.
    return document


def asset_url(request: web.Request, tenant_path: str, name: str) -> str:
    """The address of an asset. All assets of a version are in one folder, because scripts import each other."""
    pages = request.app[STATIC_FILES]
    pages.asset(name)
    return f"{tenant_path}/dashboard/assets/{pages.version}/{name}"


def asset_response(request: web.Request, name: str, version: str = "") -> web.Response:
    """An asset; `version` is the one in its address. Raises NotFound."""
    pages = request.app[STATIC_FILES]
    asset = pages.asset(name)
    max_age = f"{VERSIONED_MAX_AGE}, immutable" if version == pages.version else f"{MAX_AGE}"
    headers = {"Cache-Control": f"public, max-age={max_age}", "Vary": "Accept-Encoding"}
    body = asset.content
    if asset.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = asset.compressed
    charset = None if asset.content_type == "image/png" else "utf-8"
    return BytesResponse(body=body, content_type=asset.content_type, charset=charset, headers=headers)
