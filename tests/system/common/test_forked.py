"""A program that is forked is to its caller what a started one is."""

import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

import pytest

from tests.support.processes import forked
from tests.support.processes.forked import Forked, start, template

JSON = (sys.executable, "-m", "json.tool")


@pytest.fixture(params=[True, False], ids=["forked", "started"])
async def forking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[bool]:
    monkeypatch.setattr(forked, "_asked", [])
    if not request.param:
        yield False
        return
    async with template():
        yield True


async def test_it_reads_and_says_what_a_started_one_does_and_ends_alike(forking: bool) -> None:
    for given, arguments, told in (
        (b'{"b": 1}', ["--compact"], (0, b'{"b":1}\n', b"")),
        (b"{", [], (1, b"", b"Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n")),
    ):
        process = await start([*JSON, *arguments], env=os.environ, said=given, stdout=PIPE, stderr=PIPE)
        said = await process.communicate()
        assert (process.returncode, *said) == told
        assert isinstance(process, Forked) == forking


async def test_it_is_killed_as_a_started_one_is(forking: bool) -> None:
    process = await start([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"], env=os.environ)
    assert process.returncode is None
    process.send_signal(signal.SIGSTOP)
    process.kill()
    assert await process.wait() == -signal.SIGKILL == process.returncode


async def test_it_has_the_environment_that_it_is_given(forking: bool) -> None:
    env = {"LISTEN": "nowhere:at:all"}
    process = await start([sys.executable, "-m", "gateway"], env=env, stdout=PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 1
    assert b"LISTEN" in said
