"""Starts programs of the product. In tests they are forks of a process that has already imported the product.

Imports take most of a program's start. Only `python -m MODULE` is forked. Other commands, and all commands of
benchmarks, are started normally.
"""

import asyncio
import atexit
import ctypes
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from deploy.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
IN_TEST = "PYTEST_VERSION" in os.environ
PR_SET_PDEATHSIG = 1
FORK_CONTEXT = multiprocessing.get_context("forkserver")
SERVICES = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")
COMMAND_MODULES = sorted({f"deploy.cli.{command.module}" for command in COMMANDS.values()})
FORK_CONTEXT.set_forkserver_preload([__name__, *COMMAND_MODULES, *(f"{service}.app" for service in SERVICES)])


class Fork:
    """A forked program, with the attributes of asyncio's `Process` that tests use."""

    def __init__(self, process: multiprocessing.process.BaseProcess, outputs: Sequence[asyncio.StreamReader | None]):
        assert process.pid
        self.pid = process.pid
        self.stdout, self.stderr = outputs
        self._process = process
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)
        atexit.register(self.kill)  # Otherwise Python waits for it at exit.

    def _end(self) -> None:
        atexit.unregister(self.kill)
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._ended.set()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait until it exits. Returns its output and errors."""
        streams = (self.stdout, self.stderr)
        output, errors = await asyncio.gather(*(stream.read() if stream else _no_output() for stream in streams))
        await self.wait()
        return output, errors

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Program = Fork | Process


async def start_program(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
    stdout: IO[str] | int = DEVNULL,
    stderr: int = STDOUT,
) -> Program:
    """Start a command in the folder of the sources. By default its errors are part of its output."""
    if IN_TEST and tuple(command[:2]) == (sys.executable, "-m") and "LD_PRELOAD" not in env:
        return await _fork(command[2:], env, stdin, stdout, stderr)
    process = await asyncio.create_subprocess_exec(
        *kill_with_parent(), *command, cwd=ROOT, env=env, stdin=PIPE, stdout=stdout, stderr=stderr
    )
    assert process.stdin
    process.stdin.write(stdin)
    process.stdin.close()
    return process


async def _fork(
    command: Sequence[str], env: Mapping[str, str], stdin: bytes, stdout: IO[str] | int, stderr: int
) -> Fork:
    await asyncio.shield(_start_fork_server())
    with ExitStack() as stack:
        source, sink = FORK_CONTEXT.Pipe(duplex=False)
        assert len(stdin) < 1 << 16, "the pipe has no reader yet"
        os.write(sink.fileno(), stdin)
        sink.close()
        output, reader = await _output(stdout)
        errors, error_reader = (output, None) if stderr == STDOUT else await _output(stderr)
        for connection in (source, output, errors):
            stack.enter_context(connection)
        arguments = (command[0], command[1:], dict(env), (source, output, errors))
        process = FORK_CONTEXT.Process(target=_run_module, args=arguments)
        process.start()
    return Fork(process, (reader, error_reader))


@cache
def _start_fork_server() -> asyncio.Future[None]:
    """Start the process that imports the product. A thread waits for it, so the event loop is not blocked."""
    return asyncio.get_running_loop().run_in_executor(None, _run_nothing)


def _run_nothing() -> None:
    process = FORK_CONTEXT.Process(target=int)
    process.start()
    process.join()


async def _output(target: IO[str] | int) -> tuple[Connection, asyncio.StreamReader | None]:
    """The program's end of a pipe or file, and this process's reader of the pipe."""
    if target == PIPE:
        source, sink = FORK_CONTEXT.Pipe(duplex=False)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(os.dup(source.fileno()), "rb"))
        source.close()
        return sink, reader
    descriptor = os.open(os.devnull, os.O_WRONLY) if isinstance(target, int) else os.dup(target.fileno())
    return Connection(descriptor, readable=False), None


async def _no_output() -> bytes:
    return b""


def _run_module(module: str, arguments: Sequence[str], env: Mapping[str, str], standard: Sequence[Connection]) -> None:
    """Run a module like `python -m`, in a fork."""
    # Otherwise the fork server waits for this process, and the test run for the fork server.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, connection in enumerate(standard):
        os.dup2(connection.fileno(), number)
    for connection in standard:
        connection.close()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  Open until the process ends.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in env)  # type: ignore[union-attr]
    # The modules of the command read the terminal at import, so each program imports them again.
    for name in [name for name in sys.modules if name.partition(".")[0] == "deploy"]:
        del sys.modules[name]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def kill_with_parent() -> Sequence[str]:
    """A command prefix that kills the service if the test run is killed."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL") if setpriv else ()
