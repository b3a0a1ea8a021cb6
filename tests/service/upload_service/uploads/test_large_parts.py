"""A file that a thread receives from the socket is the same, to the last byte, as one that the parser finds."""

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web
from yarl import URL

from common.errors import Problem
from common.http.middleware import json_response
from common.http.zero_copy.socket_body import SocketBody
from tests.support.services.upload import sha256
from tests.support.system.stub_service import serve_handler
from tests.support.tables import every_cell
from tests.support.wait import TIMEOUT
from upload_service.model import ContentRange, Upload
from upload_service.uploads.routes import ChunkForm, InstallerForm
from upload_service.uploads.service import expect_length

Answer = tuple[int, object]

BUFFER = 64  # bytes that the thread receives at once
FORM_LIMIT = 300  # bytes at the end of a form, which the thread does not receive
LENGTH = 2000  # bytes of a file
DATA = bytes(range(128)) * 16
DELIMITER = b"\r\n--b"
END = DELIMITER + b"--\r\n"
NEXT = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def part(name: str, content: bytes, *, filename: str | None = "c.exe", more: str = "") -> bytes:
    names = f'name="{name}"' + ("" if filename is None else f'; filename="{filename}"')
    return f"\r\n--b\r\nContent-Disposition: form-data; {names}\r\n{more}\r\n".encode() + content


def field(name: str, value: bytes = b"x") -> bytes:
    return part(name, value, filename=None)


def form(*parts: bytes, end: bytes = END) -> bytes:
    return b"".join(parts).removeprefix(b"\r\n") + end


FILE = DATA[:LENGTH]
FORMS = {
    "a file": form(part("file", FILE)),
    "fields before": form(field("a"), field("b", b"\r\n\r\n"), part("file", FILE)),
    "many line breaks before": form(field("a", b"\r\n\r\n" * 100), part("file", FILE)),
    "fields after": form(part("file", FILE), field("a"), field("b", DATA[:100])),
    "a file that ends early": form(part("file", FILE), field("a", DATA[128:] * 2)),
    "an epilogue": form(part("file", FILE), end=END + DATA * 2),
    "an epilogue like a form": form(part("file", FILE), end=END + form(part("file", FILE))),
    "two files": form(part("file", FILE), part("file", FILE)),
    "another file": form(part("logo", DATA), part("file", FILE)),
    "a server filename before": form(field("server_filename"), part("file", FILE)),
    "a server filename after": form(part("file", FILE), field("server_filename")),
    "an empty file": form(part("file", b""), field("a", DATA[128:] * 4)),
    "no file": form(part("file", b"", filename=""), end=END + DATA),
    "no file name": form(part("file", FILE, filename=None)),
    "a length of its own": form(part("file", FILE, more=f"Content-Length: {LENGTH}\r\n")),
    "a wrong length of its own": form(part("file", FILE, more="Content-Length: 9\r\n")),
    "no end": form(part("file", FILE), end=b""),
    "half an end": form(part("file", FILE), end=DELIMITER),
    "no line break before the end": form(part("file", FILE), end=END[2:]),
    "another delimiter": form(part("file", FILE), end=b"\r\n--c--\r\n"),
    "more after the delimiter": form(part("file", FILE + DELIMITER + b"more" + FILE)),
    "a long preamble": b"\r\n" * 300 + form(part("file", FILE)),
    "a head that is too long": form(part("file", FILE, more="X: " + "x" * 20_000 + "\r\n")),
    "a line break after a long head": form(part("a", b"\r\n\r\n", more="X: 1\r\n" * 3), part("file", b"\r\n" + FILE)),
    "nothing but line breaks": form(part("file", b"\r\n" * 1000)),
    "nothing but starts of the delimiter": form(part("file", b"\r\n--" * 500)),
    "a carriage return before the end": form(part("file", FILE + b"\r")),
    "an epilogue like a request": form(part("file", FILE), end=END + NEXT),
    **{f"a body without its last {cut} bytes": form(part("file", FILE))[:-cut] for cut in (1, 2, 3, 4, 9, 500, 1500)},
    **{
        f"{extra} bytes more": form(part("file", FILE + DATA[:extra]), field("a", DATA[:400]))
        for extra in range(1, BUFFER + 5)
    },
}
CHUNKS = {
    "a chunk": form(part("chunk", FILE)),
    "a longer chunk": form(part("chunk", FILE + b"x")),
    "a much longer chunk": form(part("chunk", FILE + FILE)),
    "a shorter chunk": form(part("chunk", FILE[:-1])),
    "a part after": form(part("chunk", FILE), field("a")),
    "a part before": form(field("a"), part("chunk", FILE)),
    "an early end": form(part("chunk", FILE[:1000] + END + FILE[1000:])),
    "two chunks": form(part("chunk", FILE[:1000]), part("chunk", FILE[:1000])),
    "no end of the chunk": form(part("chunk", FILE), end=b"\r\n-"),
}


class Content:
    """Keeps the bytes of a part."""

    def __init__(self) -> None:
        self.data, self.ends = b"", 0

    def write(self, block: memoryview) -> None:
        self.data += block

    def end(self) -> None:
        self.ends += 1


async def describe(request: web.Request) -> web.Response:
    """The bytes, the fields and the suffix of a form, or the status of its problem."""
    if request.method == "GET":
        return json_response("next")
    form: ChunkForm | InstallerForm = ChunkForm(request) if "X-Chunk" in request.headers else InstallerForm(request)
    length = LENGTH if isinstance(form, ChunkForm) else None
    is_plain, content, way = "X-Plain" in request.headers, b"", "parser"
    blocks: AsyncIterator[bytes | SocketBody] = form.large_blocks(0 if is_plain else length)
    if length:
        blocks = expect_length(Upload("t", "f", "u", LENGTH), ContentRange(0, LENGTH - 1, LENGTH), blocks)
    try:
        async for block in blocks:
            if isinstance(block, bytes):
                content += block
                continue
            sink, way = Content(), "thread"
            await block.receive(sink)
            assert (len(block), sink.ends) == (len(sink.data), block.rest.startswith(DELIMITER))
            content += sink.data
    except Problem as problem:
        return json_response({"way": way}, status=problem.status)
    fields = getattr(form, "fields", None)
    return json_response({"way": way, "sha256": sha256(content), "fields": fields, "suffix": form.suffix})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LEAST": 1, "BUFFER": BUFFER, "VISIT": 500, "VISIT_TIMEOUT": 0.001, "PAUSE": 0.001}.items():
        monkeypatch.setattr(f"common.http.zero_copy.socket_body.{name}", value)
    monkeypatch.setattr("common.http.bodies.FORM_LIMIT", FORM_LIMIT)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serve_handler(describe) as address:
        yield address


async def answers(address: str, body: bytes, *headers: str, more: int = 0, piece: int = 700) -> list[Answer]:
    """The answers to a form, sent in pieces, and to the next request. The form claims `more` bytes."""
    url, kind = URL(address), "Content-Type: multipart/form-data; boundary=b"
    reader, writer = await asyncio.open_connection(url.host, url.port)
    lines = ["POST / HTTP/1.1", "Host: x", kind, f"Content-Length: {len(body) + more}", *headers, "", ""]
    head = "\r\n".join(lines).encode()
    data = head + body + NEXT
    try:
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
            await writer.drain()
            await asyncio.sleep(0)
        if more:
            writer.write_eof()
        async with asyncio.timeout(TIMEOUT):
            text = await reader.read()
    except ConnectionError:
        return []
    finally:
        writer.close()
    found = []
    while text:
        head, _, text = text.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        found.append((int(head.split(b" ")[1]), orjson.loads(text[:length]) if b"application/json" in head else None))
        text = text[length:]
    return found


async def compare(address: str, body: bytes, *headers: str) -> bool:
    """Expect the answers of the parser for any pieces of a body. Returns whether a thread received bytes."""
    expected = await answers(address, body, *headers, "X-Plain: 1")
    ways = set()
    for piece in (len(body) + 1000, 700, 61):
        received = await answers(address, body, *headers, piece=piece)
        for _, answer in received:
            if isinstance(answer, dict):
                ways.add(answer.pop("way"))
        for _, answer in expected:
            if isinstance(answer, dict):
                answer.pop("way", None)
        assert received == expected
    return "thread" in ways


async def test_a_form_is_read_like_one_that_only_the_parser_sees(address: str) -> None:
    by_thread = set()
    with every_cell() as cell:
        for name, body in FORMS.items():
            with cell(name):
                if await compare(address, body):
                    by_thread.add(name)
    assert len(by_thread) > len(FORMS) - 15
    assert {"a file", "fields before", "fields after", "a file that ends early", "two files", "no end"} <= by_thread


async def test_a_chunk_is_read_like_one_that_only_the_parser_sees(address: str) -> None:
    with every_cell() as cell:
        for name, body in CHUNKS.items():
            with cell(name):
                assert await compare(address, body, "X-Chunk: 1")


async def test_a_large_file_keeps_all_its_bytes(address: str) -> None:
    (first, _) = await answers(address, FORMS["fields after"])
    fields = [["a", "x"], ["b", DATA[:100].decode()]]
    assert first == (200, {"way": "thread", "sha256": sha256(FILE), "fields": fields, "suffix": ".exe"})


async def test_a_body_that_breaks_off_has_no_answer(address: str) -> None:
    for body, *headers in ((FORMS["a file"],), (CHUNKS["a chunk"], "X-Chunk: 1")):
        assert await answers(address, body, *headers, more=10_000) == []
    assert len(await answers(address, FORMS["a file"])) == 2
