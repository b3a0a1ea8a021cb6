"""Moves of installers between storages: after any interruption one storage has the whole file."""

import asyncio
import errno
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import Unavailable
from tests.support.servers.object_faults import ObjectFaults
from tests.support.services.storage_pair import FILE, StoragePair
from upload_service.model import Damage, Status, StorageFull, StorageKind, Upload
from upload_service.storage.filesystem import InstallerStorage, StorageBackends
from upload_service.storage.migration import Outcome
from upload_service.storage.part_files import PartFile

TO_BOTH = pytest.mark.parametrize("new", [StorageKind.S3, StorageKind.FOLDER])
STEPS = [
    ("put", "before"),
    ("put", "after"),
    ("size", "before"),
    *((method, moment) for method in ("set_storage", "remove", "clear_previous") for moment in ("before", "after")),
]
SAMPLES = {
    (StorageKind.S3, "put", "after"),
    (StorageKind.S3, "set_storage", "after"),
    (StorageKind.FOLDER, "remove", "before"),
}
EACH_STEP = pytest.mark.parametrize(
    ("new", "method", "moment"),
    [
        pytest.param(
            *(new, method, moment),
            id=f"to {new} {moment} {method}",
            marks=() if (new, method, moment) in SAMPLES else pytest.mark.full,
        )
        for new in (StorageKind.S3, StorageKind.FOLDER)
        for method, moment in STEPS
    ],
)


def other(storage: StorageKind) -> StorageKind:
    (found,) = set(StorageKind) - {storage}
    return found


class Killed(BaseException):
    """A process was killed."""


class InterruptingProxy:
    """A proxy that runs an action before or after the first call of one method."""

    def __init__(self, real: object, method: str, moment: str, action: Callable[[], Awaitable[object]]) -> None:
        self._real = real
        self._method = method
        self._when = moment
        self._what: Callable[[], Awaitable[object]] | None = action

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        action = self._what
        if name != self._method or action is None:
            return method

        async def call_with_action(*arguments: Any) -> Any:
            self._what = None
            if self._when == "before":
                await action()
            result = await method(*arguments)
            if self._when == "after":
                await action()
            return result

        return call_with_action


class KillableStore:
    """The store of a process that can be killed; a killed process changes nothing."""

    def __init__(self, real: object) -> None:
        self._real = real
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return _nothing if self.dead else getattr(self._real, name)


async def _nothing(*_: object) -> None: ...


def interrupted_mover(
    storages: StoragePair, new: StorageKind, method: str, moment: str, action: Callable[[], Awaitable[object]]
) -> Any:
    """A mover that is interrupted at a step, and its store, which can be killed."""
    old = other(new)
    store: Any = KillableStore(InterruptingProxy(storages.store, method, moment, action))
    homes: Any = {old: storages.backend(old), new: storages.backend(new)}
    side = new if method in {"put", "size"} else old
    homes[side] = InterruptingProxy(homes[side], method, moment, action)
    return storages.mover(new, store=store, backends=StorageBackends(homes)), store


@TO_BOTH
@pytest.mark.parametrize("content", [b"x", FILE, FILE * 90], ids=["a byte", "small", "large"])
async def test_a_file_is_moved(storages: StoragePair, new: StorageKind, content: bytes) -> None:
    upload = await storages.add_installer(content, other(new))
    assert await storages.move_all(new) == [Outcome.MOVED]
    await storages.assert_only_in(new, upload, content)
    assert await storages.move_all(new) == []
    for home in (other(new), new):
        assert await storages.move_all(home) == [Outcome.MOVED]
        await storages.assert_only_in(home, upload, content)


@EACH_STEP
async def test_a_mover_killed_at_any_step_loses_nothing(
    storages: StoragePair, new: StorageKind, method: str, moment: str
) -> None:
    upload = await storages.add_installer(storage=other(new))

    async def kill() -> None:
        store.dead = True
        raise Killed

    mover, store = interrupted_mover(storages, new, method, moment, kill)
    with pytest.raises(Killed):
        await mover.run()
    home = StorageKind((await storages.record(upload))["home"])
    assert await storages.read_from(home, upload) == FILE
    await storages.expire_leases()
    await storages.mover(new).run()
    await storages.assert_only_in(new, upload)


@EACH_STEP
async def test_after_a_mover_stopped_at_any_step_another_continues_at_once(
    storages: StoragePair, new: StorageKind, method: str, moment: str
) -> None:
    upload = await storages.add_installer(storage=other(new))

    async def stop() -> None:
        task.cancel()
        await asyncio.sleep(0)

    mover, _ = interrupted_mover(storages, new, method, moment, stop)
    task = asyncio.create_task(mover.run())
    with pytest.raises(asyncio.CancelledError):
        await task
    await storages.mover(new).run()
    await storages.assert_only_in(new, upload)


@TO_BOTH
async def test_many_movers_at_once_move_each_file_once(storages: StoragePair, new: StorageKind) -> None:
    uploads = [await storages.add_installer(storage=other(new)) for _ in range(8)]
    outcomes = await asyncio.gather(*(storages.move_all(new) for _ in range(4)))
    assert [outcome for several in outcomes for outcome in several] == [Outcome.MOVED] * len(uploads)
    for upload in uploads:
        await storages.assert_only_in(new, upload)


def run_others(storages: StoragePair, *homes: StorageKind) -> Callable[[], Awaitable[None]]:
    """Other movers that run to these storages after the lease of the interrupted one has expired."""

    async def run() -> None:
        for home in homes:
            await storages.expire_leases()
            await storages.mover(home).run()

    return run


@EACH_STEP
async def test_a_mover_without_its_lease_changes_nothing(
    storages: StoragePair, new: StorageKind, method: str, moment: str
) -> None:
    upload = await storages.add_installer(storage=other(new))
    mover, _ = interrupted_mover(storages, new, method, moment, run_others(storages, new))
    await mover.run()
    await storages.assert_only_in(new, upload)


@TO_BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_delayed_mover_keeps_a_file_that_was_moved_back(
    storages: StoragePair, new: StorageKind, moment: str
) -> None:
    upload = await storages.add_installer(storage=other(new))
    mover, _ = interrupted_mover(storages, new, "set_storage", moment, run_others(storages, new, other(new)))
    await mover.run()
    home = StorageKind((await storages.record(upload))["home"])
    assert await storages.read_from(home, upload) == FILE


@EACH_STEP
async def test_a_file_deleted_during_a_move_leaves_no_copy(
    storages: StoragePair, new: StorageKind, method: str, moment: str
) -> None:
    upload = await storages.add_installer(storage=other(new))

    async def delete() -> None:
        await storages.removal.remove(upload)

    mover, _ = interrupted_mover(storages, new, method, moment, delete)
    await mover.run()
    assert await storages.store.find(upload) is None
    assert [await storages.backend(home).size(upload) for home in StorageKind] == [None, None]


async def store_copy(storages: StoragePair, upload: Upload, home: StorageKind, content: bytes) -> None:
    copy = storages.root / "copy"
    copy.write_bytes(content)
    await storages.backend(home).put(upload, copy)


@TO_BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_delayed_cleanup_of_a_mover_keeps_the_recorded_file(
    storages: StoragePair, new: StorageKind, moment: str
) -> None:
    """Another mover brings the file back before the first one removes the old copy."""
    upload = await storages.add_installer(storage=other(new))
    await store_copy(storages, upload, new, FILE)
    await storages.database["uploads"].update_one(
        {"tenant_id": upload.tenant_id}, {"$set": {"home": new, "left": upload.storage}}
    )
    mover, _ = interrupted_mover(storages, new, "renew", moment, run_others(storages, new, other(new)))
    await mover.run()
    await storages.assert_only_in(other(new), upload)


@TO_BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_delayed_mover_that_rejects_a_copy_keeps_the_recorded_file(
    storages: StoragePair, new: StorageKind, moment: str
) -> None:
    upload = await storages.add_installer(storage=other(new))
    await store_copy(storages, upload, new, bytes(upload.size))
    # The first of the others removes the other file.
    mover, _ = interrupted_mover(storages, new, "renew", moment, run_others(storages, new, new))
    await mover.run()
    await storages.assert_only_in(new, upload)


class DelayedStorage:
    """A storage that stores a file only after another step."""

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


@TO_BOTH
async def test_a_copy_stored_after_a_deletion_is_removed(storages: StoragePair, new: StorageKind) -> None:
    upload = await storages.add_installer(storage=other(new))

    async def delete() -> None:
        await storages.removal.remove(upload)

    delayed = DelayedStorage(storages.backend(new), storages.root / "on its way", delete)
    homes = StorageBackends({other(new): storages.backend(other(new)), new: delayed})
    assert [outcome async for _, outcome in storages.mover(new, backends=homes).moves()] == [Outcome.CHANGED]
    assert [await storages.backend(home).size(upload) for home in StorageKind] == [None, None]


@TO_BOTH
async def test_a_file_claimed_by_a_version_while_it_is_moved_is_moved(storages: StoragePair, new: StorageKind) -> None:
    upload = await storages.add_installer(storage=other(new), status=Status.COMPLETE)

    async def claim() -> None:
        await storages.database["uploads"].update_one(
            {"tenant_id": upload.tenant_id}, {"$set": {"status": Status.LINKED}, "$inc": {"fence": 1}}
        )

    mover, _ = interrupted_mover(storages, new, "put", "before", claim)
    await mover.run()
    await storages.assert_only_in(new, upload)


def flip_bit(storages: StoragePair, upload: Upload) -> None:
    path = storages.folder.path(upload)
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)


async def test_an_altered_file_is_not_moved_and_is_marked(storages: StoragePair) -> None:
    damaged, sound = await storages.add_installer(), await storages.add_installer()
    flip_bit(storages, damaged)
    assert sorted(await storages.move_all(StorageKind.S3)) == [Outcome.ALTERED, Outcome.MOVED]
    record = await storages.record(damaged)
    assert (record["home"], record["damage"]) == (StorageKind.FOLDER, Damage.ALTERED)
    assert await storages.folder.size(damaged) == damaged.size
    assert await storages.objects.size(damaged) is None
    await storages.assert_only_in(StorageKind.S3, sound)
    assert await storages.move_all(StorageKind.S3) == []


@TO_BOTH
async def test_a_missing_file_is_reported_and_does_not_stop_the_scrub(storages: StoragePair, new: StorageKind) -> None:
    missing, sound = [await storages.add_installer(storage=other(new)) for _ in range(2)]
    await storages.backend(other(new)).remove(missing)
    assert sorted(await storages.move_all(new)) == [Outcome.FAILED, Outcome.MOVED]
    assert (await storages.record(missing))["home"] == other(new)
    await storages.assert_only_in(new, sound)


@TO_BOTH
async def test_another_file_with_the_same_name_is_no_copy(storages: StoragePair, new: StorageKind) -> None:
    upload = await storages.add_installer(storage=other(new))
    await store_copy(storages, upload, new, bytes(upload.size))
    assert await storages.move_all(new) == [Outcome.FAILED]
    assert await storages.move_all(new) == []
    await storages.expire_leases()
    assert await storages.move_all(new) == [Outcome.MOVED]
    await storages.assert_only_in(new, upload)


async def test_an_unreadable_object_is_marked_and_stops_no_move(
    faulty_storages: StoragePair, faults: ObjectFaults
) -> None:
    bad, sound = [await faulty_storages.add_installer(storage=StorageKind.S3) for _ in range(2)]
    faults.unreadable.add(bad.server_filename)
    assert sorted(await faulty_storages.move_all(StorageKind.FOLDER)) == [Outcome.MOVED, Outcome.UNREADABLE]
    record = await faulty_storages.record(bad)
    assert (record["home"], record["damage"]) == (StorageKind.S3, Damage.UNREADABLE)
    assert await faulty_storages.objects.size(bad) == bad.size
    await faulty_storages.assert_only_in(StorageKind.FOLDER, sound)
    assert await faulty_storages.move_all(StorageKind.FOLDER) == []


async def test_an_unreadable_file_in_the_folder_stops_no_move(
    storages: StoragePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, sound = [await storages.add_installer() for _ in range(2)]
    open_path = Path.open

    def fail(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == storages.folder.path(bad):
            raise OSError(errno.EIO, "Input/output error")
        return open_path(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", fail)
    assert sorted(await storages.move_all(StorageKind.S3)) == [Outcome.MOVED, Outcome.UNREADABLE]
    assert (await storages.record(bad))["damage"] == Damage.UNREADABLE
    await storages.assert_only_in(StorageKind.S3, sound)


async def test_an_unreadable_copy_stops_no_move(faulty_storages: StoragePair, faults: ObjectFaults) -> None:
    bad, sound = [await faulty_storages.add_installer() for _ in range(2)]
    faults.unreadable.add(bad.server_filename)
    assert sorted(await faulty_storages.move_all(StorageKind.S3)) == [Outcome.FAILED, Outcome.MOVED]
    await faulty_storages.assert_only_in(StorageKind.FOLDER, bad)
    await faulty_storages.assert_only_in(StorageKind.S3, sound)


async def test_a_storage_that_does_not_respond_stops_the_move(
    faulty_storages: StoragePair, faults: ObjectFaults
) -> None:
    upload = await faulty_storages.add_installer(storage=StorageKind.S3)
    assert await faulty_storages.ownership.is_ours(StorageKind.S3)
    faults.unreadable.update([upload.server_filename, "id"])
    with pytest.raises(Unavailable):
        await faulty_storages.move_all(StorageKind.FOLDER)
    assert (await faulty_storages.record(upload))["damage"] == Damage.NONE


async def test_a_full_disk_stops_the_migration_before_a_fetch(
    storages: StoragePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await storages.add_installer(storage=StorageKind.S3)
    room = shutil.disk_usage(storages.root)._replace(free=upload.size - 1)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: room)
        with pytest.raises(StorageFull):
            await storages.mover(StorageKind.FOLDER).run()
    await storages.assert_only_in(StorageKind.S3, upload)
    assert await storages.move_all(StorageKind.FOLDER) == [Outcome.MOVED]


async def test_a_slow_disk_blocks_no_request(storages: StoragePair, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()

    def recording(work: Callable[..., Any]) -> Callable[..., Any]:
        def record_thread(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*arguments)

        return record_thread

    monkeypatch.setattr(shutil, "disk_usage", recording(shutil.disk_usage))
    for name in ("write", "sync", "close"):
        monkeypatch.setattr(PartFile, name, recording(getattr(PartFile, name)))
    await storages.add_installer(storage=StorageKind.S3)
    assert await storages.move_all(StorageKind.FOLDER) == [Outcome.MOVED]
    assert len(threads) == 4
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    "change",
    [{"updated_at": "$$NOW"}, {"status": Status.OPEN}, {"status": Status.DELETING}],
    ids=["just completed", "open", "deleting"],
)
async def test_a_file_that_is_not_settled_is_not_moved(storages: StoragePair, change: dict[str, str]) -> None:
    upload = await storages.add_installer()
    await storages.database["uploads"].update_one({"tenant_id": upload.tenant_id}, [{"$set": change}])
    assert await storages.move_all(StorageKind.S3) == []
