"""The files of the web pages, read once; nothing else can be asked for."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import yaml

from common.errors import NotFound

CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "png": "image/png"}


class Pages:
    """The files of the pages, read once; nothing else can be asked for."""

    def __init__(self) -> None:
        here = files("gateway")
        self.document = _document()
        self._files = {
            entry.name: entry.read_bytes()
            for folder in (here / "pages", here / "vendor" / "swagger-ui")
            for entry in folder.iterdir()
            if entry.is_file()
        }

    def text(self, name: str) -> str:
        return self._files[name].decode()

    def asset(self, name: str) -> bytes:
        """A script, style or picture. Raises NotFound."""
        if name not in self._files or name.endswith(".html") or name.rpartition(".")[2] not in CONTENT_TYPES:
            raise NotFound("There is no such file.")
        return self._files[name]


@cache
def _document() -> Mapping[str, object]:
    """The interface's document: long, so that reading it is most of a gateway's start."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # A build without libyaml has only the slow one.
    text = (files("gateway") / "openapi.yaml").read_text(encoding="utf-8")
    document: Mapping[str, object] = yaml.load(text, loader)  # noqa: S506  # Both are safe.
    return document
