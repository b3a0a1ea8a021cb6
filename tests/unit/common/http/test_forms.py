"""Malformed bodies are answered with 400, never 500; invalid texts and numbers are refused."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from enum import StrEnum

import pytest
from aiohttp import ClientSession, web
from yarl import URL

from common.errors import InvalidField
from common.http.forms import MAX_INTEGER, Form, read_form
from common.http.middleware import json_response, problems
from common.http.server import serving
from tests.support.api import Answer, read_answer
from tests.support.tables import each

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=X"
PART = b'--X\r\nContent-Disposition: form-data; name="name"\r\n'
LIMIT = 4096


class Colour(StrEnum):
    SEA_GREEN = "sea-GREEN"
    RED = "red"


@pytest.fixture(scope="module")
async def address() -> AsyncIterator[str]:
    """A server that returns the fields and the file sizes of a form."""

    async def echo(request: web.Request) -> web.Response:
        form = await read_form(request, limit=LIMIT)
        sizes = {name: len(content) for name, content in form.files.items()}
        return json_response({"fields": form.fields, "files": sizes})

    app = web.Application(middlewares=[problems])
    app.router.add_post("/", echo)
    async with serving(app, "127.0.0.1:0") as served:
        yield served


async def send(address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    async with (
        ClientSession(skip_auto_headers=["Content-Type"]) as session,
        session.post(address, data=body, headers=headers) as response,
    ):
        return await read_answer(response)


async def send_raw(address: str, head: bytes, body: bytes) -> int:
    """The status of the response to bytes that no client library sends."""
    url = URL(address)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + b"\r\n\r\n" + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1])


MALFORMED = {
    "an unknown charset": (b"name=a", {"Content-Type": f"{URLENCODED}; charset=nonsense"}),
    "the charset UTF-7": (b"name=+AGE-", {"Content-Type": f"{URLENCODED}; charset=utf-7"}),
    "the charset UTF-16": (b"n\0a\0", {"Content-Type": f"{URLENCODED}; charset=utf-16"}),
    "raw bytes that are not UTF-8": (b"name=\xff\xfe", {"Content-Type": URLENCODED}),
    "escapes that are not UTF-8": (b"name=%ff%fe", {"Content-Type": URLENCODED}),
    "an escaped surrogate": (b"name=%ed%a0%80", {"Content-Type": URLENCODED}),
    "JSON": (b'{"name": "a"}', {"Content-Type": "application/json"}),
    "no content type": (b"name=a", {}),
    "an empty content type": (b"name=a", {"Content-Type": ""}),
    "a compressed form that is not": (b"name=a", {"Content-Type": URLENCODED, "Content-Encoding": "gzip"}),
    "an unknown compression": (b"name=a", {"Content-Type": URLENCODED, "Content-Encoding": "nonsense"}),
    "multipart without a boundary": (PART + b"\r\na\r\n--X--\r\n", {"Content-Type": "multipart/form-data"}),
    "multipart with an impossible boundary": (b"a", {"Content-Type": f"multipart/form-data; boundary={'b' * 300}"}),
    "multipart that ends early": (PART + b"\r\na", {"Content-Type": MULTIPART}),
    "multipart without its last line": (PART + b"\r\na\r\n--X\r\n", {"Content-Type": MULTIPART}),
    "multipart of something else": (b"name=a", {"Content-Type": MULTIPART}),
    "a part without a name": (b"--X\r\n\r\na\r\n--X--\r\n", {"Content-Type": MULTIPART}),
    "a part with a broken header": (b"--X\r\nnonsense\r\n\r\na\r\n--X--\r\n", {"Content-Type": MULTIPART}),
    "a part whose header is not UTF-8": (
        b'--X\r\nContent-Disposition: form-data; name="\xff"\r\n\r\na\r\n--X--\r\n',
        {"Content-Type": MULTIPART},
    ),
    "a part of an unknown charset": (
        PART + b"Content-Type: text/plain; charset=nonsense\r\n\r\na\r\n--X--\r\n",
        {"Content-Type": MULTIPART},
    ),
    "a part that is not UTF-8": (PART + b"\r\n\xff\r\n--X--\r\n", {"Content-Type": MULTIPART}),
    "a part of a wrong length": (PART + b"Content-Length: 9\r\n\r\na\r\n--X--\r\n", {"Content-Type": MULTIPART}),
    "more fields than a form may have": (b"a=1&" * 1001, {"Content-Type": URLENCODED}),
}


@each("kind", MALFORMED)
async def test_a_malformed_body_is_answered_with_400(address: str, kind: str) -> None:
    answer = await send(address, *MALFORMED[kind])

    assert answer.status == 400, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"


@each(
    ("head", "body"),
    [
        (b"Transfer-Encoding: chunked\r\nContent-Type: " + URLENCODED.encode(), b"zz\r\nname=a\r\n0\r\n\r\n"),
        (b"Content-Length: 6\r\nContent-Type: \xff\xfe", b"name=a"),
        (b"Transfer-Encoding: chunked\r\nContent-Type: " + MULTIPART.encode(), b"0\r\n\r\n"),
    ],
    ids=range(3),
)
async def test_unusual_raw_bodies_are_answered_with_400(address: str, head: bytes, body: bytes) -> None:
    assert await send_raw(address, head, body) == 400


@each(("body", "content_type"), [(b"name=%c3%a4", URLENCODED), (PART + b"\r\n\xc3\xa4\r\n--X--\r\n", MULTIPART)])
async def test_a_form_is_read_in_either_encoding(address: str, body: bytes, content_type: str) -> None:
    assert (await send(address, body, {"Content-Type": content_type})).body["fields"] == {"name": ["ä"]}


async def test_a_repeated_field_keeps_its_order(address: str) -> None:
    answer = await send(address, b"list=1&list=2&empty=&plus=a+b%26", {"Content-Type": f"{URLENCODED}; charset=UTF-8"})

    assert answer.body["fields"] == {"list": ["1", "2"], "empty": [""], "plus": ["a b&"]}


@each("form", ["a", "a=", "=", "=b", "a==b", "&&a=1&", "a=1;b=2", "a=1&a=2", "a=1&=&b", "a=\0\n"])
async def test_a_form_without_escapes_is_read_like_one_with_escapes(address: str, form: str) -> None:
    plain, decoded = [
        (await send(address, sent.encode(), {"Content-Type": URLENCODED})).body["fields"]
        for sent in (form, f"{form}&decoded=%20")
    ]

    assert plain == {name: values for name, values in decoded.items() if name != "decoded"} != {}


async def test_a_file_is_distinguished_from_a_field(address: str) -> None:
    part = b'--X\r\nContent-Disposition: form-data; name="logo"; filename="a.png"\r\n\r\n\xff\xfe\r\n--X--\r\n'

    assert (await send(address, part, {"Content-Type": MULTIPART})).body == {"fields": {}, "files": {"logo": 2}}


@each("headers", [{}, {"Content-Type": MULTIPART}, {"Content-Type": "application/octet-stream"}])
async def test_a_missing_body_is_an_empty_form_of_any_type(address: str, headers: dict[str, str]) -> None:
    assert (await send(address, b"", headers)).body == {"fields": {}, "files": {}}


@each("content_type", [URLENCODED, MULTIPART])
async def test_a_form_longer_than_the_limit_is_answered_with_413(address: str, content_type: str) -> None:
    body = PART + b"\r\n" + b"a" * LIMIT + b"\r\n--X--\r\n"

    assert (await send(address, body, {"Content-Type": content_type})).status == 413


@each("head", [b"Content-Type: " + URLENCODED.encode(), b"Content-Type: " + MULTIPART.encode()])
async def test_a_form_of_unknown_length_is_answered_with_413_past_the_limit(address: str, head: bytes) -> None:
    content = PART + b"\r\n" + b"a" * LIMIT + b"\r\n--X--\r\n"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)

    assert await send_raw(address, b"Transfer-Encoding: chunked\r\n" + head, chunked) == 413


@each("character", ["\0", "\x1b", "\x7f", "\x85", "\n", "\ud800", "\u202e", "\u2066", "\u2028"])
def test_characters_that_are_not_text_are_refused(character: str) -> None:
    with pytest.raises(InvalidField, match=r"^name: "):
        Form({"name": (f"a{character}b",)}).text("name", limit=10)


@each(
    ("text", "limit", "read"),
    [
        ("a\u0308", 2, "ä"),  # the normal form
        ("abcd", 3, None),
        ("a" + "\u0308" * 1000, 10, None),
        ("\ufb2c", 2, None),  # a Hebrew letter without a composed form: three characters in normal form
    ],
)
def test_text_is_limited_in_its_normal_form(text: str, limit: int, read: str | None) -> None:
    form = Form({"name": (text,)})
    if read:
        assert form.text("name", limit=limit) == read
    else:
        with pytest.raises(InvalidField, match=f"longer than {limit}"):
            form.text("name", limit=limit)


def test_line_breaks_are_accepted_if_allowed() -> None:
    assert Form({"name": ("a\r\n\tb",)}).text("name", limit=10, lines=True) == "a\r\n\tb"


@each("fields", [{}, {"name": ("",)}])
def test_required_text_must_be_present(fields: Mapping[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidField, match="name: is required"):
        Form(fields).text("name", limit=3)


@each("text", ["0", "1", "007", str(MAX_INTEGER)])
def test_a_whole_number_is_read_under_either_name(text: str) -> None:
    for name in ("client", "Client"):
        assert Form({name: (text,)}).integer("client", "Client", default=5) == int(text)


@each(
    "text",
    ["-1", "+1", str(2**31), str(2**63), "1" + "0" * 30, "1e3", "0x1", "1.0", " 1", "1_0", "\uff11", "one", "1\n"],
)
def test_an_invalid_whole_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^client: "):
        Form({"client": (text,)}).integer("client", default=0)


@each("text", ["sea-green", "SEA_GREEN", "Sea-Green"])
def test_a_choice_is_accepted_in_any_letter_case(text: str) -> None:
    assert Form({"colour": (text,)}).choice("colour", Colour) is Colour.SEA_GREEN


@each("fields", [{}, {"colour": ("",)}, {"colour": ("blue",)}, {"colour": ("r\0ed",)}])
def test_an_unknown_choice_is_refused(fields: Mapping[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidField, match="sea-GREEN, red"):
        Form(fields).choice("colour", Colour)


@each(
    ("texts", "value"),
    [
        *(((text,), True) for text in ("1", "true", "TRUE")),
        *(((text,), False) for text in ("0", "False")),
        *((texts, None) for texts in ((), ("",), ("yes",), ("2",))),
    ],
)
def test_only_booleans_are_accepted(texts: tuple[str, ...], value: bool | None) -> None:
    form = Form({"enabled": texts} if texts else {})
    with nullcontext() if value is not None else pytest.raises(InvalidField, match=r"^enabled: "):
        assert form.flag("enabled") is value


def test_a_list_is_repeated_or_separated_by_commas_and_limited() -> None:
    assert Form({"ids": ("a, b,,", "c")}).texts("ids", limit=5) == ("a", "b", "c")
    with pytest.raises(InvalidField, match="more than 1000"):
        Form({"ids": (",".join(["a"] * 1001),)}).texts("ids", limit=5)


async def test_unescaped_text_is_accepted(address: str) -> None:
    answer = await send(address, "name=Müller".encode(), {"Content-Type": URLENCODED})
    assert answer.body["fields"] == {"name": ["Müller"]}


def test_the_non_empty_one_of_two_spellings_counts() -> None:
    form = Form({"auth_token": ("",), "Auth-Token": ("a-token",)})
    assert form.get("auth_token", "Auth-Token") == "a-token"


def test_a_list_is_counted_before_it_is_parsed() -> None:
    with pytest.raises(InvalidField, match="more than 3 items"):
        Form({"ids": (",,,,",)}).texts("ids", limit=10, most=3)
