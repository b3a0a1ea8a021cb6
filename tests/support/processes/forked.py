"""Programs of the product without the time that a Python takes to start: forks of a process that has imported all.

    async with template():
        process = await start([sys.executable, "-m", "deploy.cli", "status"], env=os.environ, stdout=PIPE)

Outside of `template`, and where the loader is to bring in a library, a command is started as anywhere else.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[3]
_asked: list[socket.socket] = []  # where the template listens, while there is one


class Forked:
    """A program, with what tests ask of asyncio's `Process`."""

    def __init__(self, told: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self.started, self._ended = loop.create_future(), loop.create_future()
        self._told, self._heard = told, b""
        loop.add_reader(told, self._hear)

    def _hear(self) -> None:
        """Its pid stands on the first line, its status on the second."""
        self._heard += (heard := os.read(self._told, 100))
        pid, _, status = self._heard.partition(b"\n")
        if status.endswith(b"\n") or not heard:
            asyncio.get_running_loop().remove_reader(self._told)
            os.close(self._told)
            self.returncode = int(status or -signal.SIGKILL)
            self._ended.set_result(None)
        if not self.started.done():
            self.pid = int(pid)
            self.started.set_result(None)

    async def wait(self) -> int:
        await asyncio.shield(self._ended)
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """What it wrote, and its end."""
        out, err = await asyncio.gather(*(_rest(stream) for stream in (self.stdout, self.stderr)))
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Program = Forked | Process


@asynccontextmanager
async def template() -> AsyncIterator[None]:
    """Let programs that are started within the block be forks; those that still run at its end are killed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with its:
            process = await asyncio.create_subprocess_exec(
                *dying_with_us(),
                *(sys.executable, "-m", "tests.support.processes.template", str(its.fileno())),
                pass_fds=[its.fileno()],
                cwd=ROOT,
                stdin=DEVNULL,
            )
        _asked.append(ours)
        yield
        _asked.remove(ours)
    await process.wait()


async def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    said: bytes = b"",
    stdout: IO[str] | int = DEVNULL,
    stderr: int = STDOUT,
) -> Program:
    """Run a command in our own folder, with `said` to read; and `stderr` beside `stdout`."""
    if _asked and tuple(command[:2]) == (sys.executable, "-m") and "LD_PRELOAD" not in env:
        request = {"module": command[2], "arguments": command[3:], "env": dict(env), "cwd": str(ROOT)}
        return await _fork(request, said, stdout, stderr)
    process = await asyncio.create_subprocess_exec(
        *dying_with_us(), *command, cwd=ROOT, env=env, stdin=PIPE, stdout=stdout, stderr=stderr
    )
    assert process.stdin
    process.stdin.write(said)
    process.stdin.close()
    return process


async def _fork(request: Mapping[str, object], said: bytes, stdout: IO[str] | int, stderr: int) -> Forked:
    told, tells = os.pipe()
    program = Forked(told)
    given, gives = os.pipe()
    os.write(gives, said)
    os.close(gives)
    out, program.stdout = await _output(stdout, None)
    err, program.stderr = await _output(stderr, out)
    descriptors = (given, out, err, tells)
    socket.send_fds(_asked[-1], [json.dumps(request).encode()], descriptors)
    for descriptor in set(descriptors):
        os.close(descriptor)
    await program.started
    return program


async def _rest(stream: asyncio.StreamReader | None) -> bytes:
    return await stream.read() if stream else b""


async def _output(wanted: IO[str] | int, beside: int | None) -> tuple[int, asyncio.StreamReader | None]:
    """A descriptor of ours to write to, and a pipe's other end."""
    if wanted == PIPE:
        ours, its = os.pipe()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(ours, "rb"))
        return its, reader
    if wanted == STDOUT and beside is not None:
        return os.dup(beside), None
    return os.open(os.devnull, os.O_WRONLY) if isinstance(wanted, int) else os.dup(wanted.fileno()), None


def dying_with_us() -> Sequence[str]:
    """What to put before a command so that a run of the tests that is killed leaves no service behind."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()
