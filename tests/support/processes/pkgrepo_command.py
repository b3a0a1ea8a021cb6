"""`pkgrepo` as operators run it: one command, several commands in one process, or a running `pkgrepo up`."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from aiohttp import ClientSession

from tests.support.processes.fork_server import Program, start_program

PKGREPO = (sys.executable, "-m", "deploy.cli.main")
READY = "Press Ctrl-C to stop."
TIMEOUT = 60  # seconds for a start or a stop; reached only when something hangs


@dataclass(frozen=True)
class RunningPkgrepo:
    """A running `pkgrepo up` and its output until it was ready."""

    process: Program
    output: str
    folder: Path

    @property
    def data(self) -> tuple[str, str]:
        """The option of commands about it."""
        return "--data", str(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        """The settings of commands without that option."""
        stores = json.loads((self.folder / "run" / "addresses.json").read_text())
        settings = {name.upper(): stores[name] for name in ("mongo_url", "redis_url")}
        return {**settings, "AUDIT_KEY_FILE": str(self.folder / "audit-key")}

    @property
    def base_url(self) -> str:
        match = re.search(r"(https?://\S+) is ready", self.output)
        assert match, self.output
        return match[1]

    @property
    def curl_lines(self) -> str:
        return "\n".join(line for line in self.output.splitlines() if "curl " in line)


@asynccontextmanager
async def start_pkgrepo(folder: Path, *options: str, **environment: str) -> AsyncIterator[Program]:
    """Start `pkgrepo up` on a free port, and stop it at the end."""
    command = [*PKGREPO, "up", "--data", str(folder), "--port", "0", *options]
    process = await start_program(command, env={**os.environ, **environment}, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT):
            await process.communicate()


@asynccontextmanager
async def run_pkgrepo(folder: Path, *options: str, **environment: str) -> AsyncIterator[RunningPkgrepo]:
    """Run `pkgrepo up`, and wait until it is ready."""
    async with start_pkgrepo(folder, *options, **environment) as process:
        yield RunningPkgrepo(process, await _until_ready(process), folder)


async def _until_ready(process: Program) -> str:
    assert process.stdout is not None
    lines = []
    async with asyncio.timeout(TIMEOUT):
        async for line in process.stdout:
            lines.append(line.decode())
            if READY in lines[-1]:
                return "".join(lines)
    raise AssertionError("".join(lines))


async def pkgrepo(*arguments: str, answer: str = "", **environment: str) -> tuple[int | None, str]:
    """Run a command. Returns its status, and its output on one line."""
    process = await start_program(
        [*PKGREPO, *arguments],
        env={**os.environ, "COLUMNS": "200", **environment},
        stdin=answer.encode(),
        stdout=PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode, " ".join(output.decode().split())


async def pkgrepo_commands(*commands: Sequence[str], answer: str = "", **environment: str) -> list[tuple[int, str]]:
    """Run commands one after another in one process, which saves time. Returns the status and output of each."""
    process = await start_program(
        [sys.executable, "-m", __name__, json.dumps(commands)],
        env={**os.environ, "COLUMNS": "200", **environment},
        stdin=answer.encode(),
        stdout=PIPE,
        stderr=PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [(status, text) for status, text in json.loads(output)]


async def administrator(session: ClientSession, base_url: str, folder: Path) -> dict[str, str]:
    """The headers of the first administrator of `pkgrepo up`, with a new session."""
    credentials = {"username": "admin", "password": (folder / "admin-password").read_text()}
    async with session.post(f"{base_url}/login", data=credentials) as answer:
        assert answer.status == 200
        return {"Authorization": f"Bearer {(await answer.json())['message']}"}


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    from deploy.cli.main import main  # noqa: PLC0415  reads the terminal at import

    output, status = StringIO(), 0
    sys.argv = ["pkgrepo", *arguments]
    with redirect_stdout(output), redirect_stderr(output):
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else bool(end.code)
            output.write(end.code if isinstance(end.code, str) else "")
    return status, " ".join(output.getvalue().split())


if __name__ == "__main__":
    json.dump([_run(command) for command in json.loads(sys.argv[1])], sys.stdout)
