"""Targets: the parsers of bodies. The first line of an input is the Content-Type, the rest is the body."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from auth_service import forms as auth_forms
from catalog_service.versions.forms import new_version, package_id, version_uids
from client_registry.routes import client_credentials, client_name, new_entry, new_group, new_release
from common.errors import InvalidField, InvalidRequest, NotFound
from common.http.bodies import read_json
from common.http.forms import MAX_INTEGER, Form, clean, flag, read_form
from tests.fuzz.requests import outcome, request
from upload_service.model import SUFFIXES
from upload_service.uploads.routes import ChunkForm, InstallerForm

TEXT_LIMIT = 64  # characters
NAMES = 8  # fields of a form that are parsed as every type

READERS: tuple[Callable[[Form], Any], ...] = (
    lambda form: new_version(form, "a-package"),
    lambda form: package_id(form.text("package_id", limit=128)),
    version_uids,
    client_name,
    new_entry,
    new_group,
    new_release,
    auth_forms.selection,
    auth_forms.as_json_lines,
)


def form(data: bytes) -> None:
    """A form has the same fields for any split of its bytes and after encoding it again; its fields are valid or
    refused.
    """
    headers, body = _split(data)
    read = outcome(read_form(request(headers, body)))
    assert _agree(read, outcome(read_form(request(headers, body, pieces_of=_size(body)))))
    if isinstance(read, int):
        return
    again = urlencode([(name, value) for name, values in read.fields.items() for value in values]).encode()
    written = {"Content-Type": "application/x-www-form-urlencoded"}
    assert outcome(read_form(request(written, again))) == Form(read.fields)
    for name in list(read.fields)[:NAMES]:
        _field(read, name)
    for reader in READERS:
        with suppress(InvalidField, NotFound):
            reader(read)


def chunk(data: bytes) -> None:
    """A chunk has the same bytes for any split of its body; its file suffix is a known one."""
    headers, body = _split(data)

    async def read(pieces_of: int) -> tuple[bytes, str]:
        sent = ChunkForm(request(headers, body, pieces_of=pieces_of))
        blocks = [block async for block in sent.blocks()]
        return b"".join(blocks), sent.suffix

    came = outcome(read(len(body) + 1))
    assert _agree(came, outcome(read(_size(body))))
    assert isinstance(came, int) or (came[0] in body and came[1] in SUFFIXES)


def installer(data: bytes) -> None:
    """An installer and its fields are the same for any split of the body."""
    headers, body = _split(data)

    async def read(pieces_of: int) -> tuple[bytes, str, list[tuple[str, str]]]:
        sent = InstallerForm(request(headers, body, pieces_of=pieces_of))
        blocks = [block async for block in sent.blocks()]
        return b"".join(blocks), sent.suffix, sent.fields

    came = outcome(read(len(body) + 1))
    assert _agree(came, outcome(read(_size(body))))
    assert isinstance(came, int) or (came[0] in body and came[1] in SUFFIXES and urlencode(came[2]) is not None)


def question(data: bytes) -> None:
    """A request between services is a JSON object or refused; its fields have the right types or are refused."""
    read = outcome(read_json(request({}, data)))
    assert isinstance(read, (int, Mapping))
    credentials = outcome(client_credentials(request({}, data)))
    assert isinstance(credentials, int) or (isinstance(credentials[0], str) and 0 <= credentials[1] <= MAX_INTEGER)


def _field(read: Form, name: str) -> None:
    """Parse a field as every type."""
    with suppress(InvalidField):
        text = read.text(name, limit=TEXT_LIMIT, required=False, lines=True)
        assert len(text) <= TEXT_LIMIT
        assert clean(name, text, limit=TEXT_LIMIT, lines=True) == text
    with suppress(InvalidField):
        assert all(text and "," not in text for text in read.texts(name, limit=TEXT_LIMIT))
    with suppress(InvalidField):
        assert 0 <= read.integer(name, default=0) <= MAX_INTEGER
    with suppress(InvalidField):
        assert read.flag(name) is flag(name, str(read.flag(name)))
    with suppress(InvalidField):
        auth_forms.time(name, read.get(name))


def _split(data: bytes) -> tuple[dict[str, str], bytes]:
    kind, _, body = data.partition(b"\n")
    return {"Content-Type": kind.decode(errors="surrogateescape")}, body


def _agree(first: object, second: object) -> bool:
    """Whether two parses of a body agree.

    Malformed bodies may be refused or ignored: `multipart` only searches the bytes received so far.
    """
    return first == second or InvalidRequest.status in (first, second)


def _size(body: bytes) -> int:
    """The size of the pieces of a body: small, and different for bodies of another length."""
    return 1 + len(body) % 13
