"""Hostile logos harm neither catalog_service nor other tenants."""

import asyncio
import sys
from pathlib import Path

import pytest
from aiohttp import FormData

from catalog_service.logos import service
from catalog_service.logos.service import PROCESSES
from common.auth.internal_tokens import Caller
from common.concurrency.confined_process import run_confined
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.memory import MemoryGrowth
from tests.support.services.catalog import Catalog, picture
from tests.support.wait import until

GOOD = picture(size=(512, 512))


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tests independent of the load of the machine."""
    monkeypatch.setattr(service, "SLOT_TIMEOUT", 60)
    monkeypatch.setattr(service, "WALL_TIME", 60)


async def add(catalog: Catalog, caller: Caller, logo: bytes, package_id: str = "acme.editor") -> Answer:
    form = FormData({"package_id": package_id, "package_name": "Editor", "package_publisher": "Acme"})
    form.add_field("Logo", logo, filename="logo.png")
    return await catalog.call(caller, "POST", "add_package", data=form)


@pytest.mark.parametrize(("edge", "answer"), [(4000, (400, "Logo: has more than 4000000 pixels")), (2000, (200, None))])
async def test_six_large_images_need_little_memory(catalog: Catalog, edge: int, answer: tuple[int, str | None]) -> None:
    logo = picture(size=(edge, edge), mode="RGBA")
    await add(catalog, make_caller(), GOOD)
    growth = MemoryGrowth()
    growth.start()

    answers = await asyncio.gather(*(add(catalog, make_caller(), logo) for _ in range(6)))

    growth.end()
    assert growth.largest < 64 << 20
    assert [(each.status, each.body.get("detail")) for each in answers] == [answer] * 6


class BlockedLogos:
    """Blocks the decoding of one image until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.picture = picture(size=(9, 9))
        self.begun = 0
        self.released = asyncio.Event()
        monkeypatch.setattr(service, "run_confined", self._held)

    async def _held(self, module: str, *, stdin: bytes, wall_time: float, output_limit: int) -> bytes:
        if stdin == self.picture:
            self.begun += 1
            await self.released.wait()
        return await run_confined(module, stdin=stdin, wall_time=wall_time, output_limit=output_limit)

    async def wait_until_begun(self) -> None:
        async def decoding_started() -> bool:
            return self.begun > 0

        await until(decoding_started)


@pytest.fixture
def blocked_logos(monkeypatch: pytest.MonkeyPatch) -> BlockedLogos:
    return BlockedLogos(monkeypatch)


async def test_waiting_logos_of_a_tenant_do_not_delay_another_tenant(
    catalog: Catalog, blocked_logos: BlockedLogos
) -> None:
    hostile, other = make_caller(), make_caller()
    names = [f"acme.{number}" for number in range(2 * PROCESSES)]
    hostile_calls = [asyncio.create_task(add(catalog, hostile, blocked_logos.picture, name)) for name in names]

    await blocked_logos.wait_until_begun()
    answer = await add(catalog, other, GOOD)
    packages = await catalog.packages(other)
    blocked_logos.released.set()

    assert answer.status == 200
    assert [package["PACKAGE_ID"] for package in packages] == ["acme.editor"]
    assert blocked_logos.begun == 1
    assert [(await call).status for call in hostile_calls] == [200] * len(names)


async def test_a_logo_that_waits_too_long_gets_503_and_adds_no_package(
    catalog: Catalog, blocked_logos: BlockedLogos, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_caller()
    first = asyncio.create_task(add(catalog, caller, blocked_logos.picture, "acme.first"))

    await blocked_logos.wait_until_begun()
    monkeypatch.setattr(service, "SLOT_TIMEOUT", 0.01)
    answer = await add(catalog, caller, GOOD, "acme.second")
    blocked_logos.released.set()

    assert (answer.status, answer.body["code"]) == (503, "overloaded")
    assert int(answer.headers["Retry-After"]) > 0
    assert (await first).status == 200
    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["acme.first"]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A shell script that runs instead of the decoding process."""
    path = tmp_path / "python"
    path.touch(mode=0o700)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("kill -XCPU $$", "Logo: takes too much time or memory to decode"),
        ("exit 4", "Logo: takes too much time or memory to decode"),
        *((script, "Logo: is not a PNG or JPEG image") for script in ("kill -SEGV $$", "exit 1", "echo markup", "yes")),
    ],
)
async def test_a_logo_that_crashes_its_decoder_is_refused(
    catalog: Catalog, stand_in: Path, script: str, detail: str
) -> None:
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    caller = make_caller()

    answer = await add(catalog, caller, GOOD)

    assert (answer.status, answer.body["detail"]) == (400, detail)
    assert await catalog.packages(caller) == []


async def test_an_endless_decoder_is_killed_and_adds_no_package(
    catalog: Catalog, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WALL_TIME", 0.2)
    stand_in.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/started\nexec sleep 99\n")
    caller = make_caller()

    answer = await add(catalog, caller, GOOD)

    assert (answer.status, answer.body["code"]) == (503, "overloaded")
    assert await catalog.packages(caller) == []
    assert not _runs(tmp_path / "started")


async def test_a_disconnect_ends_the_decoder_and_adds_no_package(
    catalog: Catalog, stand_in: Path, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    stand_in.write_text(f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}\nexec sleep 99\n")
    caller = make_caller()
    call = asyncio.create_task(add(catalog, caller, GOOD))

    async def decoding_started() -> bool:
        return started.exists()

    async def ended() -> bool:
        return not _runs(started)

    await until(decoding_started)
    call.cancel()
    await until(ended)

    assert await catalog.packages(caller) == []


async def test_a_disconnect_frees_the_slot_of_the_caller(catalog: Catalog, blocked_logos: BlockedLogos) -> None:
    caller = make_caller()
    call = asyncio.create_task(add(catalog, caller, blocked_logos.picture, "acme.first"))

    await blocked_logos.wait_until_begun()
    call.cancel()
    answer = await add(catalog, caller, GOOD, "acme.second")

    assert answer.status == 200
    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["acme.second"]


async def test_the_decoding_process_can_open_no_file() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "catalog_service.logos.decoder"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    limits = Path("/proc", str(process.pid), "limits")

    async def confined() -> bool:
        return {"Max open files": ["0", "0"], "Max cpu time": ["3", "4"]}.items() <= _limits(limits).items()

    await until(confined)
    await process.communicate(GOOD)
    assert process.returncode == 0


def _limits(path: Path) -> dict[str, list[str]]:
    return {line[:26].strip(): line[26:].split()[:2] for line in path.read_text().splitlines()}


def _runs(pid_file: Path) -> bool:
    """Whether one of the processes runs; a zombie does not."""
    numbers = pid_file.read_text().split() if pid_file.exists() else []
    states = [Path("/proc", number, "stat") for number in numbers]
    return any(state.exists() and state.read_text().split()[2] != "Z" for state in states)
