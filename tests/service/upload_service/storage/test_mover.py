"""Installers are moved from home to home, and whatever happens on the way, each is somewhere whole."""

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.services.moving import FILE, Estate
from upload_service.model import Damage, Status, StorageFull, StorageKind, Upload
from upload_service.storage.filesystem import InstallerStorage, StorageBackends
from upload_service.storage.migration import Outcome
from upload_service.uploads.part_files import PartFile

BOTH_WAYS = pytest.mark.parametrize(
    ("old", "new"), [(StorageKind.FOLDER, StorageKind.S3), (StorageKind.S3, StorageKind.FOLDER)]
)
STEPS = [
    ("put", "before"),
    ("put", "after"),
    ("size", "before"),
    ("set_storage", "before"),
    ("set_storage", "after"),
    ("remove", "before"),
    ("remove", "after"),
    ("clear_previous", "before"),
    ("clear_previous", "after"),
]
SAMPLES = {
    (StorageKind.S3, "put", "after"),
    (StorageKind.S3, "set_storage", "after"),
    (StorageKind.FOLDER, "remove", "before"),
}
EACH_STEP = pytest.mark.parametrize(
    ("old", "new", "method", "when"),
    [
        pytest.param(
            *(old, new, *step),
            id=f"to {new} {' '.join(reversed(step))}",
            marks=() if (new, *step) in SAMPLES else pytest.mark.full,
        )
        for old, new in ((StorageKind.FOLDER, StorageKind.S3), (StorageKind.S3, StorageKind.FOLDER))
        for step in STEPS
    ],
)


class Killed(BaseException):
    """What happens to a process from outside."""


class Meddled:
    """Does as the one it stands for, with something happening before or after one of its methods, the first time."""

    def __init__(self, real: object, method: str, when: str, what: Callable[[], Awaitable[object]]) -> None:
        self._real = real
        self._method = method
        self._when = when
        self._what: Callable[[], Awaitable[object]] | None = what

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        what = self._what
        if name != self._method or what is None:
            return method

        async def meddled(*given: Any) -> Any:
            self._what = None
            if self._when == "before":
                await what()
            result = await method(*given)
            if self._when == "after":
                await what()
            return result

        return meddled


class Mortal:
    """The records, as a process sees them that may be killed: after that it changes nothing any more."""

    def __init__(self, real: object) -> None:
        self._real = real
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return _nothing if self.dead else getattr(self._real, name)


async def _nothing(*_: object) -> None: ...


def meddling(estate: Estate, new: StorageKind, method: str, when: str, what: Callable[[], Awaitable[object]]) -> Any:
    """A mover with something happening at a step, and its store, which can be killed."""
    (old,) = set(StorageKind) - {new}
    mortal = Mortal(Meddled(estate.store, method, when, what))
    homes: Any = {old: estate.home(old), new: estate.home(new)}
    side = new if method in {"put", "size"} else old
    homes[side] = Meddled(homes[side], method, when, what)
    return estate.mover(new, store=mortal, homes=StorageBackends(homes)), mortal


@BOTH_WAYS
@pytest.mark.parametrize("content", [b"x", FILE, FILE * 90], ids=["a byte", "small", "large"])
async def test_a_file_is_moved(estate: Estate, old: StorageKind, new: StorageKind, content: bytes) -> None:
    upload = await estate.keep(content, old)
    assert await estate.move_all(new) == [Outcome.MOVED]
    await estate.expect_at(new, upload, content)
    assert await estate.move_all(new) == []


async def test_a_file_is_moved_there_and_back_again(estate: Estate) -> None:
    upload = await estate.keep()
    for home in (StorageKind.S3, StorageKind.FOLDER, StorageKind.S3, StorageKind.FOLDER):
        assert await estate.move_all(home) == [Outcome.MOVED]
        await estate.expect_at(home, upload)


@EACH_STEP
async def test_a_mover_killed_at_any_step_loses_nothing_and_another_goes_on(
    estate: Estate, old: StorageKind, new: StorageKind, method: str, when: str
) -> None:
    upload = await estate.keep(home=old)

    async def kill() -> None:
        mortal.dead = True
        raise Killed

    mover, mortal = meddling(estate, new, method, when, kill)
    with pytest.raises(Killed):
        await mover.run()
    home = StorageKind((await estate.record(upload))["home"])
    assert await estate.bytes_at(home, upload) == FILE
    await estate.let_leases_pass()
    await estate.mover(new).run()
    await estate.expect_at(new, upload)


@EACH_STEP
async def test_after_a_mover_stopped_at_any_step_another_continues_at_once(
    estate: Estate, old: StorageKind, new: StorageKind, method: str, when: str
) -> None:
    upload = await estate.keep(home=old)

    async def stop() -> None:
        task.cancel()
        await asyncio.sleep(0)

    mover, _ = meddling(estate, new, method, when, stop)
    task = asyncio.create_task(mover.run())
    with pytest.raises(asyncio.CancelledError):
        await task
    await estate.mover(new).run()
    await estate.expect_at(new, upload)


@BOTH_WAYS
async def test_many_movers_at_once_move_each_file_once(estate: Estate, old: StorageKind, new: StorageKind) -> None:
    uploads = [await estate.keep(home=old) for _ in range(8)]
    outcomes = await asyncio.gather(*(estate.move_all(new) for _ in range(4)))
    assert [one for several in outcomes for one in several] == [Outcome.MOVED] * len(uploads)
    for upload in uploads:
        await estate.expect_at(new, upload)


@EACH_STEP
async def test_a_mover_that_lost_its_lease_spoils_nothing(
    estate: Estate, old: StorageKind, new: StorageKind, method: str, when: str
) -> None:
    upload = await estate.keep(home=old)

    async def oversleep() -> None:
        await estate.let_leases_pass()
        await estate.mover(new).run()

    mover, _ = meddling(estate, new, method, when, oversleep)
    await mover.run()
    await estate.expect_at(new, upload)


@BOTH_WAYS
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_mover_that_slept_while_the_file_returned_removes_nothing(
    estate: Estate, old: StorageKind, new: StorageKind, when: str
) -> None:
    upload = await estate.keep(home=old)

    async def oversleep() -> None:
        for home in (new, old):
            await estate.let_leases_pass()
            await estate.mover(home).run()

    mover, _ = meddling(estate, new, "set_storage", when, oversleep)
    await mover.run()
    home = StorageKind((await estate.record(upload))["home"])
    assert await estate.bytes_at(home, upload) == FILE


@EACH_STEP
async def test_of_a_file_deleted_while_it_is_moved_nothing_is_left(
    estate: Estate, old: StorageKind, new: StorageKind, method: str, when: str
) -> None:
    upload = await estate.keep(home=old)

    async def delete() -> None:
        await estate.removal.remove(upload)

    mover, _ = meddling(estate, new, method, when, delete)
    await mover.run()
    assert await estate.store.find(upload) is None
    assert [await estate.home(home).size(upload) for home in StorageKind] == [None, None]


@BOTH_WAYS
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_mover_that_slept_before_it_tidies_up_removes_no_recorded_file(
    estate: Estate, old: StorageKind, new: StorageKind, when: str
) -> None:
    """It is about to tidy up the old home; others bring the file back there meanwhile."""
    upload = await estate.keep(home=old)
    await arrive_and_stop(estate, upload, new)

    async def oversleep() -> None:
        await estate.let_leases_pass()
        for home in (new, old):
            await estate.mover(home).run()

    mover, _ = meddling(estate, new, "renew", when, oversleep)
    await mover.remove_leftovers()
    await estate.expect_at(old, upload)


async def arrive_and_stop(estate: Estate, upload: Upload, new: StorageKind) -> None:
    """Let a file be at its new home, and its copy at the old one too."""
    copy = estate.root / "copy"
    copy.write_bytes(FILE)
    await estate.home(new).put(upload, copy)
    await estate.database["uploads"].update_one(
        {"tenant_id": upload.tenant_id}, {"$set": {"home": new, "left": upload.storage}}
    )


@BOTH_WAYS
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_mover_that_slept_before_it_gave_up_removes_no_recorded_file(
    estate: Estate, old: StorageKind, new: StorageKind, when: str
) -> None:
    upload = await estate.keep(home=old)
    (estate.root / "other").write_bytes(bytes(upload.size))
    await estate.home(new).put(upload, estate.root / "other")

    async def oversleep() -> None:
        for _ in range(2):  # The first that comes removes the other file.
            await estate.let_leases_pass()
            await estate.mover(new).run()

    mover, _ = meddling(estate, new, "renew", when, oversleep)
    await mover.run()
    await estate.expect_at(new, upload)


class Late:
    """A home at which a file arrives only after something else has happened."""

    def __init__(self, real: InstallerStorage, on_its_way: Path, first: Callable[[], Awaitable[object]]) -> None:
        self._real = real
        self._on_its_way = on_its_way
        self._first = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def put(self, upload: Upload, source: Path) -> None:
        self._on_its_way.write_bytes(source.read_bytes())
        await self._first()
        await self._real.put(upload, self._on_its_way)


@BOTH_WAYS
async def test_of_a_file_that_arrives_after_its_deletion_nothing_is_left(
    estate: Estate, old: StorageKind, new: StorageKind
) -> None:
    upload = await estate.keep(home=old)

    async def delete() -> None:
        await estate.removal.remove(upload)

    homes = StorageBackends({old: estate.home(old), new: Late(estate.home(new), estate.root / "on its way", delete)})
    assert [outcome async for _, outcome in estate.mover(new, homes=homes).moves()] == [Outcome.CHANGED]
    assert [await estate.home(home).size(upload) for home in StorageKind] == [None, None]


@BOTH_WAYS
async def test_a_file_claimed_by_a_version_while_it_is_moved_is_moved(
    estate: Estate, old: StorageKind, new: StorageKind
) -> None:
    upload = await estate.keep(home=old, status=Status.COMPLETE)

    async def claim() -> None:
        await estate.database["uploads"].update_one(
            {"tenant_id": upload.tenant_id}, {"$set": {"status": Status.LINKED}, "$inc": {"fence": 1}}
        )

    mover, _ = meddling(estate, new, "put", "before", claim)
    await mover.run()
    await estate.expect_at(new, upload)


def flip(estate: Estate, upload: Upload) -> None:
    path = estate.folder.path(upload)
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)


async def test_a_file_that_is_not_what_was_uploaded_stays_and_is_marked(estate: Estate) -> None:
    damaged, sound = await estate.keep(), await estate.keep()
    flip(estate, damaged)
    assert sorted(await estate.move_all(StorageKind.S3)) == [Outcome.ALTERED, Outcome.MOVED]
    record = await estate.record(damaged)
    assert (record["home"], record["damage"]) == (StorageKind.FOLDER, Damage.ALTERED)
    assert await estate.folder.size(damaged) == damaged.size
    assert await estate.objects.size(damaged) is None
    await estate.expect_at(StorageKind.S3, sound)
    assert await estate.move_all(StorageKind.S3) == []


@BOTH_WAYS
async def test_a_file_that_is_missing_is_said_to_be_and_keeps_no_other(
    estate: Estate, old: StorageKind, new: StorageKind
) -> None:
    missing, sound = await estate.keep(home=old), await estate.keep(home=old)
    await estate.home(old).remove(missing)
    assert sorted(await estate.move_all(new)) == [Outcome.FAILED, Outcome.MOVED]
    assert (await estate.record(missing))["home"] == old
    await estate.expect_at(new, sound)


@BOTH_WAYS
async def test_something_else_under_the_files_name_is_not_taken_for_it(
    estate: Estate, old: StorageKind, new: StorageKind
) -> None:
    upload = await estate.keep(home=old)
    (estate.root / "other").write_bytes(bytes(upload.size))
    await estate.home(new).put(upload, estate.root / "other")
    assert await estate.move_all(new) == [Outcome.FAILED]
    assert await estate.move_all(new) == []
    await estate.let_leases_pass()
    assert await estate.move_all(new) == [Outcome.MOVED]
    await estate.expect_at(new, upload)


async def test_a_full_disk_ends_the_round_before_anything_is_fetched(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await estate.keep(home=StorageKind.S3)
    room = shutil.disk_usage(estate.root)._replace(free=upload.size - 1)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: room)
        with pytest.raises(StorageFull):
            await estate.mover(StorageKind.FOLDER).run()
    await estate.expect_at(StorageKind.S3, upload)
    assert await estate.move_all(StorageKind.FOLDER) == [Outcome.MOVED]


async def test_a_slow_disk_keeps_no_request_waiting(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*given)

        return noted

    monkeypatch.setattr(shutil, "disk_usage", noting(shutil.disk_usage))
    for name in ("write", "sync", "close"):
        monkeypatch.setattr(PartFile, name, noting(getattr(PartFile, name)))
    await estate.keep(home=StorageKind.S3)
    assert await estate.move_all(StorageKind.FOLDER) == [Outcome.MOVED]
    assert len(threads) == 4
    assert threading.main_thread() not in threads


async def test_a_file_that_is_only_just_complete_is_left_alone(estate: Estate) -> None:
    upload = await estate.keep()
    now: list[Any] = [{"$set": {"updated_at": "$$NOW"}}]
    await estate.database["uploads"].update_one({"tenant_id": upload.tenant_id}, now)
    assert await estate.move_all(StorageKind.S3) == []


@pytest.mark.parametrize("status", [Status.OPEN, Status.DELETING])
async def test_what_is_not_complete_or_not_wanted_is_left_alone(estate: Estate, status: Status) -> None:
    await estate.keep(status=status)
    assert await estate.move_all(StorageKind.S3) == []
