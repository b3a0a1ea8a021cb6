"""Runs `pkgrepo publish` and similar commands as a pipeline does."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from deploy.publish.client import Credentials, HttpClient, open_http_client
from tests.support.processes.fork_server import Program, start_program
from tests.support.system.services import PASSWORD, Api

TIMEOUT = 180  # seconds; reached only when something hangs


@dataclass(frozen=True)
class CommandResult:
    """The result of a run. `log` is its error output on one line."""

    status: int | None
    output: str
    log: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The output of `--json`."""
        documents: list[dict[str, Any]] = json.loads(self.output)
        return documents


@asynccontextmanager
async def start_publish(
    api: Api, *arguments: str | Path, command: str = "publish", **environment: str
) -> AsyncIterator[Program]:
    """Start a command with the administrator's credentials, unless `environment` has others. Kills it at the end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PKGREPO_")}
    process = await start_program(
        [sys.executable, "-m", "deploy.cli.main", command, *map(str, arguments)],
        stdout=PIPE,
        stderr=PIPE,
        env={
            **inherited,
            "PKGREPO_URL": api.base_url,
            "PKGREPO_USER": "admin",
            "PKGREPO_PASSWORD": PASSWORD,
            **environment,
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def wait_for_result(process: Program) -> CommandResult:
    """Wait until a command exits, and check that its output has no secret."""
    async with asyncio.timeout(TIMEOUT):
        output, log = await process.communicate()
    assert PASSWORD.encode() not in output + log
    assert b"Bearer" not in output + log
    assert b"Traceback" not in log
    return CommandResult(process.returncode, output.decode(), " ".join(log.decode().split()))


async def run_publish(api: Api, *arguments: str | Path, command: str = "publish", **environment: str) -> CommandResult:
    async with start_publish(api, *arguments, command=command, **environment) as process:
        return await wait_for_result(process)


@asynccontextmanager
async def open_cli_client(api: Api, *, token: str = "") -> AsyncIterator[HttpClient]:
    """The command's client in this process, with the administrator's password or only a token."""
    credentials = Credentials(
        pkgrepo_user="" if token else "admin",
        pkgrepo_password=SecretStr("" if token else PASSWORD),
        pkgrepo_token=SecretStr(token),
    )
    async with open_http_client(api.base_url, None, credentials) as client:
        yield client
