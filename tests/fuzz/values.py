"""Targets: values in requests and messages of the broker."""

import io
import re
import string
from contextlib import suppress

from PIL import Image

from catalog_service.logos import EDGE, LogoRefused
from catalog_service.logos.decoder import decode_logo
from catalog_service.model.versions import VersionName, VersionOrder, newest_first
from catalog_service.versions.forms import package_id
from client_registry.clients.service import NAME_LIMIT, host_name
from client_registry.releases.service import release_version
from common.errors import InvalidField, InvalidRequest
from common.events import Event
from common.http.forms import clean
from tests.fuzz.requests import blame, request
from upload_service.downloads.routes import not_modified, requested_range
from upload_service.model import (
    MAX_TOTAL,
    ContentRange,
    PreconditionFailed,
    RangeNotSatisfiable,
    parse_file_id,
    parse_server_filename,
    suffix_of,
)

SHA256 = "5" * 64
SIZE = 1000  # bytes of a downloaded file
VERSION_LIMIT = 128  # characters


def content_range(data: bytes) -> None:
    """A Content-Range lies inside its file or is refused; each line of an input is one header."""
    try:
        span = ContentRange.parse(data.decode(errors="surrogateescape").split("\n"))
    except InvalidRequest as problem:
        blame(problem)
    else:
        assert 0 <= span.start <= span.end < span.total <= MAX_TOTAL
        assert 1 <= span.length <= span.total
        assert ContentRange.parse([f"bytes {span.start}-{span.end}/{span.total}"]) == span


def file_id(data: bytes) -> None:
    """An X-File-ID and a stored file name cannot lead out of their folder."""
    text = data.decode(errors="surrogateescape")
    assert not suffix_of(text) or suffix_of(text)[1:].isascii()
    for name in (parse_server_filename(text), _file_id(text)):
        if name is not None:
            assert name == text
            assert set(name) <= set(string.ascii_letters + string.digits + "._~+=@-")
            assert name[0] not in ".-~"
            assert len(name) <= 128


def requested_part(data: bytes) -> None:
    """A requested range lies inside the file; with another ETag the whole file is sent.

    The lines of an input: the headers Range, If-Range, If-Match, If-None-Match.
    """
    values = data.decode(errors="surrogateescape").split("\n")
    headers_of_input = zip(("Range", "If-Range", "If-Match", "If-None-Match"), values, strict=False)
    headers = [(name, value) for name, value in headers_of_input if value]
    range_request = request(headers)
    try:
        if not_modified(range_request, SHA256) is not None:
            return
        part = requested_range(range_request, SHA256, SIZE)
    except (PreconditionFailed, RangeNotSatisfiable) as problem:
        blame(problem)
    else:
        assert 0 <= part.start < part.start + part.length <= SIZE
        assert not part.whole or part.length == SIZE


def logo(data: bytes) -> None:
    """A logo becomes a small PNG with a picture and no metadata, or is refused."""
    try:
        png = decode_logo(data)
    except LogoRefused:
        return
    with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
        assert max(picture.size) <= EDGE
        assert (picture.mode, picture.info) == ("RGBA", {})
    decode_logo(png)


def host_names(data: bytes) -> None:
    """Accepted host names, release versions and package ids have the specified form."""
    text = data.decode(errors="surrogateescape")
    with suppress(InvalidField):
        name = host_name("client_name", text)
        assert name.isascii()
        assert len(name) <= NAME_LIMIT
        assert all(0 < len(label) <= 63 for label in name.split("."))
    with suppress(InvalidField):
        version = release_version("version", text)
        assert re.fullmatch(r"(0|[1-9][0-9]{0,4})(\.(0|[1-9][0-9]{0,4})){3}", version, re.ASCII)
        assert release_version("version", version) == version
    with suppress(InvalidField):
        accepted_id = package_id(text)
        assert package_id(accepted_id) == accepted_id
        assert accepted_id not in {".", ".."}
        assert not set(accepted_id) & set('/\\\0\r\n,:*?"<>|')


def versions(data: bytes) -> None:
    """Versions have one order, independent of spelling and input order; each line is one version."""
    texts = []
    for line in data.decode(errors="surrogateescape").split("\n")[:4]:
        with suppress(InvalidField):
            texts.append(clean("version", line, limit=VERSION_LIMIT))
    order = [VersionOrder(text) for text in texts]
    for a in order:
        for b in order:
            assert [a < b, a == b, b < a].count(True) == 1
            assert a != b or hash(a) == hash(b)
            assert all(a <= c for c in order if a <= b <= c)
    parsed = [VersionName("", text, "") for text in texts]
    assert newest_first(parsed) == newest_first(reversed(parsed))


def event(data: bytes) -> None:
    """A message of the broker is a valid event of a tenant that can be forwarded, or refused."""
    try:
        decoded = Event.decode(data)
    except (ValueError, KeyError, TypeError):
        return
    assert isinstance(decoded.tenant_id, str)
    assert isinstance(decoded.data, dict)
    assert decoded.routing_key == f"{decoded.type}.{decoded.tenant_id}"


def _file_id(text: str) -> str | None:
    try:
        return parse_file_id([text])
    except InvalidRequest as problem:
        blame(problem)
        return None
