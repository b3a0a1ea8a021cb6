"""No caller writes a header of an answer, or of what a service is asked."""

from collections.abc import AsyncIterator
from urllib.parse import urlencode, urlsplit

import pytest

from common.caller import Deployment
from gateway.operations import OPERATIONS, Operation, is_value
from gateway.proxy import REQUEST_HEADERS
from tests.api import Answer
from tests.system.estate import Estate, furnish, segments, title
from tests.system.raw import send_raw
from tests.system.services import Api, Services

SPLITS = ("\r\nX-Injected: 1", "\nX-Injected: 1", "\rX-Injected: 1", "\r\n\r\nHTTP/1.1 200 OK\r\nX-Injected: 1")
# As they stand in an address: once, twice, over-long, and as characters that some programs cut down to CR and LF.
ESCAPED = ("%0d%0aX-Injected:1", "%0aX-Injected:1", "%250d%250aX-Injected:1", "%c0%8d%c0%8aX-Injected:1")
ESCAPED += ("%e5%98%8d%e5%98%8aX-Injected:1",)
HEADERS = (*REQUEST_HEADERS, "Authorization", "Cookie", "Origin", "Referer", "X-Forwarded-For", "X-Forwarded-Host")


@pytest.fixture(scope="module", params=list(Deployment))
async def estate(
    request: pytest.FixtureRequest, services: Services, enforcing: Api, enforcing_single: Api
) -> AsyncIterator[Estate]:
    """A tenant that has what the operations need, so that texts come as far as they can."""
    if request.param is Deployment.MULTI:
        yield await furnish(await services.tenant())
    else:
        yield (await furnish(enforcing)).through(enforcing_single)


def check(answer: Answer) -> None:
    assert answer.status < 500, answer.body
    assert not [name for name in answer.headers if "injected" in name.casefold()]


async def ask(api: Api, method: str, target: str, headers: dict[str, str] | None = None) -> Answer:
    url = urlsplit(api.base_url)
    return await send_raw(f"{url.scheme}://{url.netloc}", method, url.path + target, {**api.headers, **(headers or {})})


@pytest.mark.parametrize("row", [row for row in OPERATIONS if any(map(is_value, row.parts))], ids=title)
async def test_no_part_of_an_address_becomes_a_header(row: Operation, estate: Estate) -> None:
    for part in filter(is_value, row.parts):
        for escaped in ESCAPED:
            path = "/".join(["", *segments(row, {**estate.parts, part.strip("{}"): f"a{escaped}"})])
            answer = await ask(estate.api, row.method, path)
            check(answer)
            assert answer.status >= 400, path


@pytest.mark.parametrize("row", OPERATIONS, ids=title)
async def test_no_query_becomes_a_header(row: Operation, estate: Estate) -> None:
    if row.method != "GET":
        return
    names = ("before", "limit", "user", "operation", "expires", "signature", "next", "include_disabled", "x\xff")
    for escaped in (*ESCAPED, "\xff", "%ff", "%", "%zz", "#", "?", "<>\"'"):
        query = "&".join(f"{name}=a{escaped}" for name in names)
        check(await ask(estate.api, row.method, "/".join(["", *segments(row, estate.parts)]) + f"?{query}"))


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.method != "GET"], ids=title)
async def test_no_field_becomes_a_header(row: Operation, estate: Estate) -> None:
    if row.word == "logout" or row.method == "DELETE":
        return  # They would end what the next ones need, and show nothing of what they are sent.
    for split in SPLITS:
        form = urlencode({name: f"{value}{split}" for name, value in estate.form.items()}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        check(await estate.send(row, headers=headers, data=form))


@pytest.mark.parametrize("header", HEADERS)
async def test_a_header_holds_one_line_of_text(header: str, estate: Estate) -> None:
    for split in SPLITS[1:3] + ("\0", "\x01", "\x7f"):
        answer = await ask(estate.api, "GET", "/get_users", {header: f"a{split}"})
        check(answer)
        # llhttp takes what a header may not hold but what ends no line; nothing that makes two of one.
        assert answer.status == 400 or split == "\x7f", split


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("value", ["\xff", "a\xc3", "\xed\xa0\x80", "\xc3\xa9", "\t", " ", "a\tb", "\x80" * 1000])
async def test_a_header_that_is_no_text_is_no_error_of_ours(header: str, value: str, estate: Estate) -> None:
    for path in ("/get_users", "/upload_package_version", "/get_audit_log"):
        check(await ask(estate.api, "GET", path, {header: value}))
