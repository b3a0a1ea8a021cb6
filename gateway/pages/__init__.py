"""The files of the web pages, read once; nothing else can be asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

import yaml
from isal import igzip

from common.errors import NotFound

CONTENT_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "png": "image/png",
    "svg": "image/svg+xml",
}
SMALLER = ("css", "js", "svg")  # A PNG is compressed already.


@dataclass(frozen=True)
class Asset:
    """One file; `compressed` is it by gzip where that makes it smaller."""

    content: bytes
    content_type: str
    compressed: bytes | None


class Pages:
    """The files of the pages, read once; nothing else can be asked for. `version` is another for other files."""

    def __init__(self) -> None:
        here = files("gateway")
        self.document = _document()
        vendored = [folder for folder in (here / "vendor").iterdir() if folder.is_dir()]
        found = [
            entry
            for folder in (here / "pages", here / "dashboard" / "static", *vendored)
            for entry in folder.iterdir()
            if entry.is_file()
        ]
        self._texts = {entry.name: entry.read_text(encoding="utf-8") for entry in found if _kind(entry.name) == "html"}
        self._assets = {
            entry.name: _asset(entry.name, entry.read_bytes()) for entry in found if _kind(entry.name) in CONTENT_TYPES
        }
        contents = [name.encode() + self._assets[name].content for name in sorted(self._assets)]
        self.version = sha256(b"".join(contents)).hexdigest()[:12]

    def text(self, name: str) -> str:
        return self._texts[name]

    def asset(self, name: str) -> Asset:
        """A script, style or picture. Raises NotFound."""
        if name not in self._assets:
            raise NotFound("There is no such file.")
        return self._assets[name]


def _asset(name: str, content: bytes) -> Asset:
    compressed = igzip.compress(content) if _kind(name) in SMALLER else None
    return Asset(content, CONTENT_TYPES[_kind(name)], compressed)


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


@cache
def _document() -> Mapping[str, object]:
    """The interface's document: long, so that reading it is most of a gateway's start."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # A build without libyaml has only the slow one.
    text = (files("gateway") / "openapi.yaml").read_text(encoding="utf-8")
    document: Mapping[str, object] = yaml.load(text, loader)  # noqa: S506  # Both are safe.
    return document
