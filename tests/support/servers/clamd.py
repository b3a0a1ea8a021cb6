"""A real clamd with a signature database of the tests' own, and fake scanners with given answers."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.servers import NotStarted, run_server
from tests.support.deployment.observability import find_program
from tests.support.servers.ports import free_port, wait_for_answer

# In two parts, so that no scanner finds this file.
EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-" + b"STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
MALWARE = b"pkgrepo-test-" + b"malware"
SIGNATURES = {
    "tests.ndb": f"Test.Marker:0:*:{MALWARE.hex()}\n",
    "tests.hdb": f"{hashlib.md5(EICAR).hexdigest()}:{len(EICAR)}:Eicar-Test\n",  # noqa: S324  the format of ClamAV
}

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Clamd:
    """The two addresses of a running clamd, as settings."""

    tcp: str
    unix: str


@asynccontextmanager
async def run_clamd(folder: Path, **settings: str) -> AsyncIterator[Clamd]:
    """Run clamd in a folder, with these settings of clamd.conf beside those that scans need."""
    port, socket, database = free_port(), folder / "clamd.sock", folder / "signatures"
    database.mkdir(parents=True)
    for name, text in SIGNATURES.items():
        (database / name).write_text(text)
    lines = {
        "DatabaseDirectory": str(database),
        "TemporaryDirectory": str(folder),
        "TCPSocket": str(port),
        "TCPAddr": "127.0.0.1",
        "LocalSocket": str(socket),
        "Foreground": "yes",
        "StreamMaxLength": "1M",
        "AlertExceedsMax": "yes",
        **settings,
    }
    configuration = folder / "clamd.conf"
    configuration.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    command = [find_program("clamd", "clamav-daemon"), f"--config-file={configuration}"]
    ready = wait_for_answer(port, b"zPING\0", b"PONG\0")
    try:
        async with run_server(command, folder / "server", lambda: ready):
            yield Clamd(f"tcp://127.0.0.1:{port}", f"unix://{socket}")
    except NotStarted as error:
        text = "\n".join(
            [f"clamd {error.reason}.", *error.log[-10:], "For the tests: `apt-get install clamav-daemon`."]
        )
        raise AssertionError(text) from None


@asynccontextmanager
async def fake_clamd(answer: Answer) -> AsyncIterator[str]:
    """A clamd that is configured well, and answers INSTREAM of a file as given. Yields its address."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            command = await reader.readuntil(b"\0")
            if command == b"zVERSION\0":
                writer.write(b"ClamAV 1.4.6/27500/Fri Nov 21 08:00:00 2025\0")
            elif command == b"zINSTREAM\0" and (length := await reader.readexactly(4)):
                first = await reader.readexactly(int.from_bytes(length, "big"))
                if first.startswith(b"PK"):  # The nested archive of a check.
                    await read_stream(reader)
                    writer.write(b"stream: Heuristics.Limits.Exceeded.MaxRecursion FOUND\0")
                else:
                    await answer(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    async with server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def read_stream(reader: asyncio.StreamReader) -> bytes:
    """The other blocks of a stream, to its end."""
    content = b""
    while length := int.from_bytes(await reader.readexactly(4), "big"):
        content += await reader.readexactly(length)
    return content


def answers(text: bytes) -> Answer:
    """Answer the whole stream with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_stream(reader)
        writer.write(text)

    return answer
