"""The scrub of stored files: damaged files are marked, and a disturbed read marks nothing."""

import errno
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.mongo import MongoDatabase
from common.work import Worker
from tests.support.services.stored import Stored
from tests.support.services.upload import folder_backends, make_uploader, serving_uploads, settings_for
from tests.support.tables import each
from upload_service.maintenance import scrub
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage, StorageKind, Upload
from upload_service.storage.filesystem import StorageBackends
from upload_service.storage.integrity import IntegrityCheck, StorageOwnership
from upload_service.storage.store import MongoFileIndex
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 250_000  # more than one block
DAY = 24 * 3600


@dataclass
class Setup(Stored):
    """A service, its database, and a scrub that calls `during` after each block."""

    backends: StorageBackends
    during: Callable[[], Awaitable[object]] | None = None
    blocks: list[int] = field(default_factory=list)

    @property
    def scrub(self) -> Scrub:
        file_index = MongoFileIndex(self.database)
        identity = StorageOwnership(file_index, self.backends, self.api.folder)
        store = MongoScrubStore(self.database, DAY)
        return Scrub(store, IntegrityCheck(self.backends, identity, self._after_block))

    async def check_due(self) -> None:
        scrub = self.scrub
        await Worker(scrub.store.queue, scrub.check_leased).run_due()

    async def _after_block(self, size: int) -> None:
        self.blocks.append(size)
        if self.during:
            await self.during()

    async def stored(self, caller: Caller, data: bytes = FILE) -> Path:
        """A file that was uploaded and linked a month ago."""
        name = await self.api.upload(caller, data)
        await self.until_announced()
        assert (await self.api.claim(caller, name)).status == 200
        await self.let_a_month_pass(caller)
        return self.api.folder / caller.tenant_id / name

    async def let_a_month_pass(self, caller: Caller) -> None:
        await self.change(caller, **{"work.scrub.due": datetime.now(UTC) - timedelta(days=30)})

    async def upload_at(self, path: Path) -> Upload:
        upload = await MongoUploadStore(self.database).find_installer(path.parent.name, path.name)
        assert upload is not None
        return upload

    async def mark(self, path: Path) -> Damage:
        return (await self.upload_at(path)).damage


@pytest.fixture
async def setup(mongo_url: str, tmp_path: Path, database: MongoDatabase) -> AsyncIterator[Setup]:
    settings = settings_for(mongo_url, tmp_path / "installers", database=database.name, scrub_interval=0)
    async with serving_uploads(settings) as api:
        yield Setup(api, database, folder_backends(settings.installers))


def flipped(data: bytes, position: int = -1) -> bytes:
    """The data with one changed bit."""
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def flip(path: Path) -> None:
    path.write_bytes(flipped(path.read_bytes()))


async def test_a_file_that_is_whole_stays_unmarked(setup: Setup) -> None:
    path = await setup.stored(make_uploader())
    await setup.check_due()
    assert sum(setup.blocks) == len(FILE)
    assert await setup.mark(path) is Damage.NONE
    await setup.check_due()
    assert sum(setup.blocks) == len(FILE)


@each(
    "change",
    [lambda data: flipped(data, 0), flipped, lambda data: data[:-1], lambda data: data + b"x"],
    ids=["first bit", "last bit", "shorter", "longer"],
)
async def test_a_changed_file_is_altered(setup: Setup, change: Callable[[bytes], bytes]) -> None:
    path = await setup.stored(make_uploader())
    path.write_bytes(change(path.read_bytes()))
    await setup.check_due()
    assert await setup.mark(path) is Damage.ALTERED


async def test_damaged_files_do_not_stop_the_scrub(setup: Setup) -> None:
    caller = make_uploader()
    missing, altered, whole = [await setup.stored(caller) for _ in range(3)]
    missing.unlink()
    flip(altered)
    await setup.check_due()
    assert [await setup.mark(path) for path in (missing, altered, whole)] == ["missing", "altered", ""]


async def test_a_complete_file_without_its_final_name_is_not_missing(setup: Setup) -> None:
    path = await setup.stored(make_uploader())
    record = await setup.upload_at(path)
    part = path.parent / "transfers" / f"{record.upload_id}.0" / f"upload_{record.file_id}.part"
    part.parent.mkdir(parents=True)
    path.rename(part)
    await setup.check_due()
    assert await setup.mark(path) is Damage.NONE
    assert path.exists()


@pytest.mark.parametrize(
    ("change", "mark"), [({"status": "deleting"}, Damage.NONE), ({}, Damage.ALTERED)], ids=["deleted", "truncated"]
)
async def test_a_file_that_changes_while_it_is_read_is_altered_unless_it_is_deleted(
    setup: Setup, change: dict[str, str], mark: Damage
) -> None:
    path = await setup.stored(make_uploader())

    async def truncate() -> None:
        path.write_bytes(b"")
        if change:
            await setup.database["uploads"].update_one({"server_filename": path.name}, {"$set": change})

    setup.during = truncate
    await setup.check_due()
    assert await setup.mark(path) is mark


async def test_an_unmounted_disk_is_not_damage(setup: Setup) -> None:
    path = await setup.stored(make_uploader())
    await setup.check_due()
    unmounted = setup.api.folder.with_name("away")
    setup.api.folder.rename(unmounted)
    setup.api.folder.mkdir()
    with pytest.raises(Unavailable):
        await setup.scrub.check(await setup.upload_at(path))
    assert await setup.mark(path) is Damage.NONE


async def test_an_unavailable_storage_is_not_damage(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = make_uploader()
    paths = [await setup.stored(caller) for _ in range(2)]
    flip(paths[1])

    def fail(*_: object) -> NoReturn:
        raise Unavailable("The object storage does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(setup.backends.get(StorageKind.FOLDER), "read", fail)
        await setup.check_due()
    await setup.check_due()
    assert [await setup.mark(path) for path in paths] == ["", "altered"]
    assert sum(setup.blocks) == 2 * len(FILE)


async def test_an_unreadable_file_is_marked_and_the_others_are_checked(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    paths = [await setup.stored(caller) for _ in range(3)]
    folder = setup.backends.get(StorageKind.FOLDER)
    read = folder.read

    def fail(upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        if upload.server_filename == paths[0].name:
            raise OSError(errno.EIO, "Input/output error")
        return read(upload, start, length)

    with monkeypatch.context() as patched:
        patched.setattr(folder, "read", fail)
        await setup.check_due()
    assert [await setup.mark(path) for path in paths] == ["unreadable", "", ""]
    listed = (await setup.api.post(caller, "damaged_installers")).body["installers"]
    assert [(row["server_filename"], row["damage"]) for row in listed] == [(paths[0].name, "unreadable")]
    answer = await setup.api.get(setup.api.address(caller, paths[0].name))
    assert (answer.status, answer.body["code"]) == (404, "installer_damaged")
    await setup.let_a_month_pass(caller)
    await setup.check_due()
    assert await setup.mark(paths[0]) is Damage.NONE


async def test_a_file_that_can_be_read_again_at_once_gets_no_mark(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await setup.stored(make_uploader())
    folder = setup.backends.get(StorageKind.FOLDER)
    size, errors = folder.size, [Unavailable("The object storage does not answer.")]

    async def fail_once(upload: Upload) -> int | None:
        if errors:
            raise errors.pop()
        return await size(upload)

    monkeypatch.setattr(folder, "size", fail_once)
    assert await setup.scrub.check(await setup.upload_at(path)) is Damage.NONE
    assert not errors


async def test_a_damaged_file_cannot_be_claimed_but_keeps_its_claim(setup: Setup) -> None:
    caller = make_uploader()
    name = await setup.api.upload(caller, FILE)
    linked = await setup.stored(caller)
    for path in (setup.api.folder / caller.tenant_id / name, linked):
        flip(path)
        await setup.scrub.check(await setup.upload_at(path))
    refused = await setup.api.claim(caller, name, "v2")
    assert (refused.status, refused.body["code"]) == (404, "installer_damaged")
    assert (await setup.api.claim(caller, linked.name)).status == 200


async def test_the_scrub_limits_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("upload_service.maintenance.scrub.asyncio.sleep", sleep)
    for _ in range(40):
        await scrub.limit_rate(1 << 20)
    assert sum(slept) == pytest.approx(2.0)
