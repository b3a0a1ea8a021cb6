"""clamd: its verdicts, and answers that are no verdict. The real clamd has a signature database of the tests' own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.clamd import EICAR, MALWARE, Answer, Clamd, answers, fake_clamd, read_stream, run_clamd
from tests.support.tables import each
from upload_service.model import Upload
from upload_service.outgoing.scanners import scanner_at
from upload_service.scanning.model import Engine, ScanFailed, ScanState, Verdict


@pytest.fixture(scope="module")
async def clamd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clamd]:
    async with run_clamd(tmp_path_factory.mktemp("clamd")) as running:
        yield running


async def blocks(content: bytes, size: int = 1 << 16) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield b""
        yield content[start : start + size]


async def scanned(url: str, content: bytes) -> Verdict:
    return await scanner_at(url).scan(file_of(len(content)), blocks(content))


def file_of(size: int) -> Upload:
    return Upload("acme", "file", "upload", size, size=size)


async def failure(url: str, content: bytes = b"MZ") -> str:
    with pytest.raises(ScanFailed) as error:
        await scanned(url, content)
    return str(error.value)


@each("address", ["tcp", "unix"])
async def test_clamd_finds_eicar_and_calls_another_file_clean(clamd: Clamd, address: str) -> None:
    url = getattr(clamd, address)
    assert await scanned(url, EICAR) == Verdict(ScanState.INFECTED, "Eicar-Test.UNOFFICIAL")
    assert await scanned(url, b"MZ and a program") == Verdict(ScanState.CLEAN)


async def test_clamd_finds_a_pattern_in_the_last_of_many_blocks(clamd: Clamd) -> None:
    assert (await scanned(clamd.tcp, b"MZ" + bytes(900_000) + MALWARE)).state is ScanState.INFECTED


async def test_a_stream_over_the_limit_of_clamd_is_too_large(clamd: Clamd) -> None:
    assert (await scanned(clamd.tcp, bytes((1 << 20) + 1))).state is ScanState.TOO_LARGE
    assert (await scanned(clamd.tcp, bytes(8 << 20))).state is ScanState.TOO_LARGE


async def test_a_file_over_the_scan_limits_of_clamd_is_too_large(tmp_path: Path) -> None:
    async with run_clamd(tmp_path, MaxFileSize="100K", MaxScanSize="100K") as small:
        verdict = await scanned(small.tcp, b"MZ" + bytes(200_000))
    assert verdict == Verdict(ScanState.TOO_LARGE, "Heuristics.Limits.Exceeded.MaxFileSize")


async def test_clamd_tells_its_engine(clamd: Clamd) -> None:
    engine = await scanner_at(clamd.tcp).check()
    assert engine.name.startswith("ClamAV ")
    assert engine.signatures == ""  # The tests' own database has no date.


async def test_a_clamd_that_skips_what_is_too_large_is_not_used(tmp_path: Path) -> None:
    async with run_clamd(tmp_path, AlertExceedsMax="no") as silent:
        with pytest.raises(ScanFailed, match="AlertExceedsMax"):
            await scanner_at(silent.tcp).check()


async def test_the_date_of_the_signature_database_is_iso_text() -> None:
    async with fake_clamd(answers(b"")) as url:
        assert await scanner_at(url).check() == Engine("ClamAV 1.4.6", "2025-11-21T08:00:00+00:00")


@each(
    "answer",
    [
        b"",
        b"stream: OK",
        b"stream: OK\0\0",
        b"stream: OK\n",
        b"stream: ok\0",
        b" stream: OK\0",
        b"other.exe: OK\0",
        b"stream: OK\0stream: OK\0",
        b"stream: OK\0stream: Test.Marker FOUND\0",
        b"stream: Can't allocate memory ERROR\0",
        b"INSTREAM: Can't write to temporary file. ERROR\0",
        b"COMMAND READ TIMED OUT\0",
        b"UNKNOWN COMMAND\0",
        b"1: stream: OK\0",
        b"stream:  FOUND\0",
        b"\xff\xfe\0",
        b"stream: OK\0".rjust(5000, b"x"),
    ],
)
async def test_an_answer_that_is_not_exactly_a_verdict_is_a_failure(answer: bytes) -> None:
    async with fake_clamd(answers(answer)) as url:
        assert await failure(url)


async def test_control_characters_in_the_name_of_malware_are_left_out() -> None:
    async with fake_clamd(answers(b"stream: Evil\x1b[31m\r\xe2\x80\xae FOUND\0")) as url:
        assert await scanned(url, b"MZ") == Verdict(ScanState.INFECTED, "Evil[31m")


async def _drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"stream: OK\0")
    await writer.drain()
    await read_stream(reader)


async def _answer_and_close_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"stream: OK\0")


async def _answer_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(4)
    writer.write(b"stream: O")
    await writer.drain()
    writer.transport.abort()


@each("answer", [_drop, _answer_early, _answer_and_close_early, _answer_and_reset], ids=lambda answer: answer.__name__)
async def test_a_broken_or_early_answer_is_a_failure(answer: Answer) -> None:
    async with fake_clamd(answer) as url:
        assert await failure(url, b"MZ" + bytes(8 << 20))


async def test_a_clamd_that_is_away_is_a_failure(tmp_path: Path) -> None:
    for url in ("tcp://127.0.0.1:1", f"unix://{tmp_path}/none.sock"):
        with pytest.raises(ScanFailed, match="not reached"):
            await scanner_at(url).check()
        assert "not reached" in await failure(url)


async def test_a_failure_to_read_the_file_is_not_the_failure_of_clamd(clamd: Clamd) -> None:
    async def unreadable() -> AsyncIterator[bytes]:
        yield b"MZ"
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await scanner_at(clamd.tcp).scan(file_of(2), unreadable())
