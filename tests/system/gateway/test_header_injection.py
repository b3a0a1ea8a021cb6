"""Callers cannot inject headers into answers or into requests to services."""

from itertools import product
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from gateway.forwarding.proxy import REQUEST_HEADERS
from gateway.operations import OPERATIONS, is_value
from tests.support.api import Answer
from tests.support.system.fields import select_fields
from tests.support.system.publishing import send_chunk
from tests.support.system.raw_http import send_raw
from tests.support.system.seed import SeedData, segments, title
from tests.support.system.services import Api
from tests.support.tables import every_cell, sampled

SPLITS = ("\r\nX-Injected: 1", "\nX-Injected: 1", "\rX-Injected: 1", "\r\n\r\nHTTP/1.1 200 OK\r\nX-Injected: 1")
# Line breaks in addresses: escaped once, twice, overlong, and as characters that some programs truncate to CR and LF.
BREAKS = ("%0d%0a", "%0a", "%250d%250a", "%c0%8d%c0%8a", "%e5%98%8d%e5%98%8a")
ESCAPED = tuple(f"{line_break}X-Injected:1" for line_break in BREAKS)
HEADERS = (*REQUEST_HEADERS, "Authorization", "Cookie", "Origin", "Referer", "X-Forwarded-For", "X-Forwarded-Host")
NAMES = ("before", "limit", "user", "operation", "expires", "signature", "next", "include_disabled")
NO_TEXT = ("\xff", "a\xc3", "\xed\xa0\x80", "\xc3\xa9", "\t", " ", "a\tb", "\x80" * 1000)

# Other operations delete objects that are still needed, and show none of their values.
TAKING_FIELDS = [row for row in OPERATIONS if row.method not in {"GET", "DELETE"} and row.name != "logout"]


def check(answer: Answer) -> None:
    assert answer.status < 500, answer.body
    assert not [name for name in answer.headers if "injected" in name.casefold()]


async def send(api: Api, method: str, target: str, headers: dict[str, str] | None = None) -> Answer:
    url = urlsplit(api.base_url)
    return await send_raw(f"{url.scheme}://{url.netloc}", method, url.path + target, {**api.headers, **(headers or {})})


async def test_no_part_of_an_address_becomes_a_header(furnished: SeedData) -> None:
    with every_cell() as cell:
        for row in OPERATIONS:
            for part in filter(is_value, row.parts):
                for escaped in ESCAPED:
                    with cell(title(row), part, escaped):
                        parts = {**furnished.parts, part.strip("{}"): f"a{escaped}"}
                        answer = await send(furnished.api, row.method, "/".join(["", *segments(row, parts)]))
                        check(answer)
                        assert answer.status >= 400 or (row.is_winget and answer.status == 204)


async def test_no_query_becomes_a_header(furnished: SeedData) -> None:
    with every_cell() as cell:
        for row in (row for row in OPERATIONS if row.method == "GET"):
            path = "/".join(["", *segments(row, furnished.parts)])
            for escaped in (*ESCAPED, "\xff", "%ff", "%", "%zz", "#", "?", "<>\"'"):
                with cell(row.path, escaped):
                    query = "&".join(f"{name}=a{escaped}" for name in NAMES)
                    check(await send(furnished.api, "GET", f"{path}?{query}"))
            with cell(row.path, "name"):
                check(await send(furnished.api, "GET", f"{path}?x\xff=a"))


async def test_a_query_with_an_escaped_line_break_reaches_the_operation(furnished: SeedData) -> None:
    query = "&".join(f"{name}=a{ESCAPED[0]}" for name in NAMES)
    assert (await send(furnished.api, "GET", f"/get_users?{query}")).status == 200


async def test_no_field_becomes_a_header(furnished: SeedData) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    with every_cell() as cell:
        for row in TAKING_FIELDS:
            for split in SPLITS:
                with cell(title(row), repr(split)):
                    form = select_fields(row, {name: f"{value}{split}" for name, value in furnished.form.items()})
                    check(await furnished.send(row, headers=headers, data=urlencode(form).encode()))


async def test_a_header_has_only_one_line(furnished: SeedData) -> None:
    with every_cell() as cell:
        for header in HEADERS:
            for split in (*SPLITS[1:3], "\0", "\x01", "\x7f"):
                with cell(header, repr(split)):
                    answer = await send(furnished.api, "GET", "/get_users", {header: f"a{split}"})
                    check(answer)
                    # llhttp accepts the delete character, and rejects all line breaks.
                    assert answer.status == 400 or split == "\x7f"


@sampled(7)
async def test_a_header_with_invalid_text_is_no_server_error(every: int, furnished: SeedData) -> None:
    paths = ("/get_users", "/upload_package_version", "/get_audit_log")
    with every_cell() as cell:
        for header, value, path in [*product(HEADERS, NO_TEXT, paths)][::every]:
            with cell(path, header, repr(value[:4])):
                check(await send(furnished.api, "GET", path, {header: value}))


async def test_invalid_bytes_of_a_header_are_not_dropped(furnished: SeedData) -> None:
    transfer = uuid4().hex
    await send_chunk(furnished.api, transfer, b"0123456789", 0, 5)
    for value, status in {transfer: 200, f"{transfer}\xff": 400, f"\x80{transfer}": 400}.items():
        answer = await send(furnished.api, "GET", "/upload_package_version", {"X-File-ID": value})
        assert answer.status == status, value
