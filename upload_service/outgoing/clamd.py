"""ClamAV's daemon over TCP or a unix socket. No client library fits: see the documentation of scanning.

clamd calls a file OK when it has read only a part of it, unless `AlertExceedsMax` is on. `check` tries that out.
"""

import asyncio
import io
import re
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from upload_service.model import Upload
from upload_service.scanning.model import Engine, ScanFailed, ScanState, Verdict, plain_text

CHECK_TIMEOUT = 10.0  # seconds
ANSWER_LIMIT = 4096  # bytes
MAX_BLOCK = (1 << 32) - 1  # bytes
LEVELS = 120  # of the nested archive; clamd allows at most 100
_VERSION = re.compile(rb"(ClamAV [^/\0\n]+)(?:/[0-9]+/([A-Za-z0-9: ]+))?\0")
_FOUND = re.compile(rb"stream: ([^\0\n]+) FOUND\0")
_CLEAN = b"stream: OK\0"
_STREAM_TOO_LARGE = b"INSTREAM size limit exceeded. ERROR\0"
_LIMITS = "Heuristics.Limits.Exceeded"


@dataclass(frozen=True)
class Clamd:
    """A scanner at `host` and `port`, or at the unix socket `path`; each command has a connection of its own."""

    host: str = ""
    port: int = 0
    path: str = ""

    async def check(self) -> Engine:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                version = _VERSION.fullmatch(await self._ask(b"zVERSION\0"))
                if version is None:
                    raise ScanFailed("clamd does not tell its version")
                verdict = _parse(await self._ask(b"zINSTREAM\0", _only(nested_archive())))
        except TimeoutError:
            raise ScanFailed("clamd does not answer") from None
        if verdict.state is not ScanState.TOO_LARGE:
            raise ScanFailed("clamd calls a file clean that it has not read; set `AlertExceedsMax yes` in clamd.conf")
        return Engine(plain_text(version[1].decode("ascii", "replace")), _date((version[2] or b"").decode("ascii")))

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        if await self._refuses(upload.size):
            return Verdict(ScanState.TOO_LARGE, "larger than clamd's StreamMaxLength")
        return _parse(await self._ask(b"zINSTREAM\0", blocks))

    async def _ask(self, command: bytes, blocks: AsyncIterator[bytes] | None = None) -> bytes:
        """The whole answer to a command. Raises ScanFailed if it begins before the end of the blocks."""
        async with self._connect() as (reader, writer):
            first = asyncio.create_task(_read(reader, 1))
            try:
                writer.write(command)
                if blocks is not None:
                    await _send(writer, blocks, first)
                await writer.drain()
                return await first + await _read(reader, ANSWER_LIMIT)
            finally:
                first.cancel()

    async def _refuses(self, size: int) -> bool:
        """Whether files of this size are over StreamMaxLength.

        clamd answers to the length of a block. After the block it would close a connection with unread bytes, and its
        answer may be lost.
        """
        async with self._connect() as (reader, writer):
            writer.write(b"zINSTREAM\0" + min(size, MAX_BLOCK).to_bytes(4, "big"))
            writer.write_eof()
            return await _read(reader, ANSWER_LIMIT) == _STREAM_TOO_LARGE

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                if self.path:
                    reader, writer = await asyncio.open_unix_connection(self.path)
                else:
                    reader, writer = await asyncio.open_connection(self.host, self.port)
        except (OSError, TimeoutError) as error:
            raise ScanFailed(f"clamd is not reached: {type(error).__name__}") from None
        try:
            yield reader, writer
        except ConnectionError:
            raise ScanFailed("the connection to clamd broke") from None
        finally:
            writer.transport.abort()


def _parse(answer: bytes) -> Verdict:
    """The verdict that an answer exactly is. Raises ScanFailed."""
    if answer == _CLEAN:
        return Verdict(ScanState.CLEAN)
    found = _FOUND.fullmatch(answer)
    if found is None:
        raise ScanFailed(f"clamd answers {answer.decode('utf-8', 'replace') or 'nothing'}")
    name = plain_text(found[1].decode("utf-8", "replace"))
    return Verdict(ScanState.TOO_LARGE if name.startswith(_LIMITS) else ScanState.INFECTED, name)


async def _send(writer: asyncio.StreamWriter, blocks: AsyncIterator[bytes], answer: asyncio.Task[bytes]) -> None:
    """Send a file. Raises ScanFailed if clamd answers before the end."""
    async for block in blocks:
        if answer.done():
            break
        if block:  # An empty block is the end of the file for clamd.
            # Not `writelines`, after which `drain` does not wait in Python 3.13.0 (CVE-2024-12254).
            writer.write(len(block).to_bytes(4, "big"))
            writer.write(block)
            await writer.drain()
    if answer.done():
        raise ScanFailed("clamd answered before it had the whole file")
    writer.write(bytes(4))


async def _read(reader: asyncio.StreamReader, limit: int) -> bytes:
    """The next `limit` bytes, or fewer at the end; none if the connection breaks."""
    try:
        return await reader.readexactly(limit)
    except asyncio.IncompleteReadError as end:
        return end.partial
    except ConnectionError:
        return b""


async def _only(block: bytes) -> AsyncIterator[bytes]:
    yield block


@cache
def nested_archive() -> bytes:
    """An archive in archives, of a few kilobytes, deeper than any clamd reads."""
    content = b"end"
    for _ in range(LEVELS):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("nested.zip"), content)
        content = file.getvalue()
    return content


def _date(text: str) -> str:
    """The date of a signature database as clamd writes it, in ISO format; "" without one. clamd runs in UTC."""
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return ""
