"""A scanner by HTTP: its verdicts, and answers that are no verdict."""

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from common.http.server import serving
from tests.support.services.upload import sha256
from tests.support.tables import each
from upload_service.model import Upload
from upload_service.outgoing.scanners import scanner_at
from upload_service.scanning.model import Engine, ScanFailed, ScanState, Verdict

FILE = b"MZ" + bytes(300_000)
UPLOAD = Upload("acme", "file", "upload", len(FILE), size=len(FILE), sha256=sha256(FILE))
CLEAN = {"state": "clean", "sha256": UPLOAD.sha256}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def fake_scanner(handler: Handler) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", handler)
    async with serving(app, "127.0.0.1:0") as address:
        yield f"{address}/scan"


def answers(body: bytes | Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    """Read the whole file, and answer with this body; other than bytes as JSON."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(body=content, status=status, headers=headers)

    return answer


def with_members(*members: str) -> bytes:
    """A JSON object of these members and the digest of the file."""
    return f'{{{", ".join(members)}, "sha256": "{UPLOAD.sha256}"}}'.encode()


async def redirect(request: web.Request) -> web.StreamResponse:
    await request.read()
    if request.path == "/scan":
        return web.Response(status=303, headers={"Location": "/clean"})
    return web.json_response(CLEAN)


async def drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def truncate(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(json.dumps(CLEAN).encode())
    return await drop(request)


async def blocks() -> AsyncIterator[bytes]:
    for start in range(0, len(FILE), 1 << 16):
        yield FILE[start : start + (1 << 16)]


async def test_the_scanner_gets_the_bytes_of_the_file() -> None:
    received: list[tuple[bytes, str | None]] = []

    async def record(request: web.Request) -> web.StreamResponse:
        received.append((await request.read(), request.headers.get("Content-Length")))
        return web.json_response({**CLEAN, "reason": "", "other": 1})

    async with fake_scanner(record) as url:
        assert await scanner_at(url).scan(UPLOAD, blocks()) == Verdict(ScanState.CLEAN)
    assert received == [(FILE, str(len(FILE)))]


async def test_the_verdict_has_the_reason_of_the_scanner_without_control_characters() -> None:
    async with fake_scanner(answers({**CLEAN, "state": "infected", "reason": "Evil\x1b[1m\n"})) as url:
        assert await scanner_at(url).scan(UPLOAD, blocks()) == Verdict(ScanState.INFECTED, "Evil[1m")


@each(
    ("answer", "date"),
    [
        ({"engine": "Scanner 2", "signatures": "2026-11-22T10:00:00+02:00"}, "2026-11-22T08:00:00+00:00"),
        ({"engine": "Scanner 2", "signatures": "yesterday"}, ""),
        ({"engine": "Scanner 2"}, ""),
    ],
)
async def test_the_engine_has_a_date_in_utc(answer: dict[str, str], date: str) -> None:
    async with fake_scanner(answers(answer)) as url:
        assert await scanner_at(url).check() == Engine("Scanner 2", date)


async def test_a_scanner_that_is_away_or_has_two_names_is_a_failure() -> None:
    async with fake_scanner(answers(b'{"engine": "Scanner 2", "engine": "Scanner 3"}')) as url:
        for address, reason in ((url, "no verdict"), ("http://127.0.0.1:1/scan", "connection")):
            with pytest.raises(ScanFailed, match=reason):
                await scanner_at(address).check()


@each(
    "answer",
    [
        answers(b""),
        answers(b"clean"),
        answers([CLEAN]),
        answers({"state": "clean"}),
        answers({"state": "CLEAN", "sha256": UPLOAD.sha256}),
        answers({"state": "ok", "sha256": UPLOAD.sha256}),
        answers({"state": True, "sha256": UPLOAD.sha256}),
        answers({"state": "clean", "sha256": sha256(b"another file")}),
        answers({"state": "clean", "sha256": UPLOAD.sha256.upper()}),
        answers({**CLEAN, "reason": "x" * 1001}),
        answers(json.dumps(CLEAN).encode() + b" " * (1 << 17)),
        answers(json.dumps(CLEAN).encode() * 2),
        answers(with_members('"state": "infected"', '"state": "clean"')),
        answers(with_members('"state": "infected"', r'"st\u0061te": "clean"')),
        answers(with_members('"state": "clean"', '"state": "clean"')),
        answers(with_members('"state": "clean"', '"file": {"sha256": "", "sha256": ""}')),
        answers(with_members('"state": "clean"', f'"sha256": "{UPLOAD.sha256}"')),
        answers(json.dumps(CLEAN).encode("utf-16")),
        answers(with_members('"state": "clean"', f'"x": {"[" * 30_000}{"]" * 30_000}')),
        answers(gzip.compress(json.dumps(CLEAN).encode()), headers={"Content-Encoding": "gzip"}),
        answers(CLEAN, status=202),
        answers(CLEAN, status=500),
        redirect,
        drop,
        truncate,
    ],
    ids=str,
)
async def test_an_answer_that_is_not_exactly_a_verdict_is_a_failure(answer: Handler) -> None:
    async with fake_scanner(answer) as url:
        with pytest.raises(ScanFailed):
            await scanner_at(url).scan(UPLOAD, blocks())
