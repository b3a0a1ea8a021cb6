"""The commands of README.md and of the publishing guide run as printed, in their order, in a fresh checkout."""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes.fork_server import ROOT
from tests.support.processes.pkgrepo_command import run_pkgrepo

ADDRESS = "http://127.0.0.1:8080"  # of the documents
START = "make run"  # The fixture starts the same.
ELSEWHERE = frozenset(["Install on Windows", "Run it in production"])  # These need Windows, or a container engine.
# A refused request is a failure.
SHELL = """set -euxo pipefail
curl() { command curl --silent --show-error --fail-with-body "$@"; }
"""
COMMAND = f"""#!/bin/sh
PYTHONPATH='{ROOT}' exec '{sys.executable}' -m deploy.cli.main "$@"
"""


@dataclass(frozen=True)
class Checkout:
    """A folder with the repository's files, in which `pkgrepo up --demo` runs."""

    folder: Path
    address: str


@pytest.fixture(scope="module")
async def checkout(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Checkout]:
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "data":
            (folder / path.name).symlink_to(path)
    command = folder / ".venv" / "bin" / "pkgrepo"
    command.parent.mkdir(parents=True)
    command.write_text(COMMAND, encoding="utf-8")
    command.chmod(0o755)
    async with run_pkgrepo(folder / "data", "--demo") as service:
        yield Checkout(folder, service.base_url.rpartition("/")[0])


@pytest.mark.parametrize("page", ["README.md", pytest.param("deploy/docs/publishing.md", marks=pytest.mark.full)])
async def test_the_commands_of_a_document_run_as_printed(checkout: Checkout, page: str) -> None:
    script = "\n".join(commands(ROOT / page)).replace(ADDRESS, checkout.address)
    assert script.count(".venv/bin/pkgrepo") >= 2
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", SHELL + script), cwd=checkout.folder, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await shell.communicate()
    assert shell.returncode == 0, output.decode()


def commands(page: Path) -> list[str]:
    """The commands of a page in their order: `sh` blocks, and the lines of `console` blocks after a prompt."""
    lines = []
    for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if section.partition("\n")[0] not in ELSEWHERE:
            for language, block in re.findall(r"^```(sh|console)\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL):
                lines += [block] if language == "sh" else re.findall(r"^\$ ((?:.*\\\n)*.*)", block, flags=re.MULTILINE)
    return [line for line in lines if line != START]
