"""A forked program behaves like a started one."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from tests.support.processes import fork_server
from tests.support.processes.fork_server import ROOT, Fork, start_program
from tests.support.wait import until

JSON = (sys.executable, "-m", "json.tool")
# Starts a program, prints its process id, and is killed.
KILLED = """
import asyncio, os, signal, sys
from tests.support.processes.fork_server import start_program
async def main():
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    print((await start_program(command, env=os.environ)).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture(params=[True, False], ids=["forked", "started"])
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(fork_server, "IN_TEST", request.param)
    return bool(request.param)


async def test_a_program_has_input_outputs_and_an_exit_status(forks: bool) -> None:
    for text, arguments, expected in (
        (b'{"b": 1}', ["--compact"], (0, b'{"b":1}\n', b"")),
        (b"{", [], (1, b"", b"Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n")),
    ):
        process = await start_program([*JSON, *arguments], env=os.environ, stdin=text, stdout=PIPE, stderr=PIPE)
        output = await process.communicate()
        assert (process.returncode, *output) == expected
        assert isinstance(process, Fork) == forks


@pytest.mark.usefixtures("forks")
async def test_a_stopped_program_is_killed() -> None:
    process = await start_program([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"], env=os.environ)
    assert process.returncode is None
    process.send_signal(signal.SIGSTOP)
    process.kill()
    assert await process.wait() == -signal.SIGKILL == process.returncode


@pytest.mark.usefixtures("forks")
async def test_a_program_has_only_the_given_environment() -> None:
    command = [sys.executable, "-m", "timeit", "-n1", "-r1", "import os; print(*os.environ)"]
    process = await start_program(command, env={"GIVEN": "yes"}, stdout=PIPE)
    output, _ = await process.communicate()
    assert b"GIVEN" in output
    assert b"PATH" not in output


@pytest.mark.full
async def test_no_program_outlives_killed_tests() -> None:
    tests = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, cwd=ROOT, stdout=PIPE)
    output, _ = await tests.communicate()
    pid = int(output)

    async def has_exited() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await until(has_exited)
