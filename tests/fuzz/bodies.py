"""Targets: the readers of bodies. The first line of an input is the Content-Type, the rest is the body."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from auth_service import forms as auth_forms
from catalog_service.forms import package_id, version_uids
from catalog_service.versions.forms import new_version
from client_registry.forms import client_credentials, client_name, new_entry, new_group, new_release
from common.errors import InvalidField, InvalidRequest, NotFound
from common.http.bodies import read_json
from common.http.forms import MAX_INTEGER, Form, clean, flag, read_form
from tests.fuzz.requests import outcome, request
from upload_service.content_range import SUFFIXES
from upload_service.forms import ChunkForm, InstallerForm

TEXT_LIMIT = 64  # characters
NAMES = 8  # of a form's fields, to read as everything they might be

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
    """A form says the same however its bytes come, and written anew; its fields are values or refused."""
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
    """A chunk's bytes are the same however they come; its file's ending is one of ours."""
    headers, body = _split(data)

    async def read(pieces_of: int) -> tuple[bytes, str]:
        sent = ChunkForm(request(headers, body, pieces_of=pieces_of))
        blocks = [block async for block in sent.blocks()]
        return b"".join(blocks), sent.suffix

    came = outcome(read(len(body) + 1))
    assert _agree(came, outcome(read(_size(body))))
    assert isinstance(came, int) or (came[0] in body and came[1] in SUFFIXES)


def installer(data: bytes) -> None:
    """An installer and the fields beside it are the same however they come."""
    headers, body = _split(data)

    async def read(pieces_of: int) -> tuple[bytes, str, list[tuple[str, str]]]:
        sent = InstallerForm(request(headers, body, pieces_of=pieces_of))
        blocks = [block async for block in sent.blocks()]
        return b"".join(blocks), sent.suffix, sent.fields

    came = outcome(read(len(body) + 1))
    assert _agree(came, outcome(read(_size(body))))
    assert isinstance(came, int) or (came[0] in body and came[1] in SUFFIXES and urlencode(came[2]) is not None)


def question(data: bytes) -> None:
    """A question between services is a JSON object or refused; what is asked of it is of its kind or refused."""
    read = outcome(read_json(request({}, data)))
    assert isinstance(read, (int, Mapping))
    seen = outcome(client_credentials(request({}, data)))
    assert isinstance(seen, int) or (isinstance(seen[0], str) and 0 <= seen[1] <= MAX_INTEGER)


def _field(read: Form, name: str) -> None:
    """Read a field as everything that a field may be."""
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


def _agree(one: object, other: object) -> bool:
    """Whether two readings of a body agree: nothing is read as two things.

    What is malformed may be refused or passed over: `multipart` looks for some of it in what has come so far.
    """
    return one == other or InvalidRequest.status in (one, other)


def _size(body: bytes) -> int:
    """The size of the pieces that a body comes in: small, and another for bodies of another length."""
    return 1 + len(body) % 13
