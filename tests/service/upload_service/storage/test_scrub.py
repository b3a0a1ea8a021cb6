"""Stored files are read again: what is not what was uploaded is marked, and whatever disturbs a reading is not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from common.auth.callers import Caller
from common.errors import Unavailable
from common.mongo import MongoDatabase
from tests.support.services.upload import UploadApi, folder_homes, make_uploader, serving_uploads, settings_for
from tests.support.waiting import until
from upload_service.maintenance import scrub
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoFileIndex, MongoScrubStore
from upload_service.model import Damage, StorageKind, Upload
from upload_service.storage.filesystem import StorageBackends
from upload_service.storage.ownership import StorageOwnership
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 250_000  # more than one block
DAY = 24 * 3600


@dataclass
class House:
    """A service, its database, and a scrub that does `during` after each block that it has read."""

    api: UploadApi
    database: MongoDatabase
    homes: StorageBackends
    during: Callable[[], Awaitable[object]] | None = None
    blocks: list[int] = field(default_factory=list)

    @property
    def scrub(self) -> Scrub:
        known = MongoFileIndex(self.database)
        identity = StorageOwnership(known, self.homes, self.api.folder)
        return Scrub(MongoScrubStore(self.database), self.homes, identity, after_block=self._after_block)

    async def _after_block(self, size: int) -> None:
        self.blocks.append(size)
        if self.during:
            await self.during()

    async def stored(self, caller: Caller, data: bytes = FILE) -> Path:
        """A file that was uploaded and linked, a month ago."""
        name = await self.api.upload(caller, data)

        async def announced() -> bool:
            return await self.database["uploads"].find_one({"server_filename": name, "announced": True}) is not None

        await until(announced)  # Then the service's relay is done with the file.
        assert (await self.api.claim(caller, name)).status == 200
        await self.let_a_month_pass(caller)
        return self.api.folder / caller.tenant_id / name

    async def let_a_month_pass(self, caller: Caller) -> None:
        then = datetime.now(UTC) - timedelta(days=30)
        await self.database["uploads"].update_many({"tenant_id": caller.tenant_id}, {"$set": {"checked_at": then}})

    async def record(self, path: Path) -> Upload:
        found = await MongoUploadStore(self.database).find_installer(path.parent.name, path.name)
        assert found is not None
        return found

    async def mark(self, path: Path) -> Damage:
        return (await self.record(path)).damage


@pytest.fixture
async def house(mongo_url: str, tmp_path: Path, database: MongoDatabase) -> AsyncIterator[House]:
    settings = settings_for(mongo_url, tmp_path / "installers", database=database.name, scrub_interval=0)
    async with serving_uploads(settings) as api:
        yield House(api, database, folder_homes(settings.installers))


def flip(path: Path, at: int = -1) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


async def test_a_file_that_is_whole_stays_unmarked(house: House) -> None:
    path = await house.stored(make_uploader())
    await house.scrub.check_due(DAY)
    assert sum(house.blocks) == len(FILE)
    assert await house.mark(path) is Damage.NONE
    await house.scrub.check_due(DAY)
    assert sum(house.blocks) == len(FILE)


@pytest.mark.parametrize("at", [0, 1_500_000, -1])
async def test_one_bit_is_found(house: House, at: int) -> None:
    path = await house.stored(make_uploader())
    flip(path, at)
    await house.scrub.check_due(DAY)
    assert await house.mark(path) is Damage.ALTERED


@pytest.mark.parametrize("content", [FILE[:-1], FILE + b"x"], ids=["shorter", "longer"])
async def test_a_file_of_another_length_is_altered(house: House, content: bytes) -> None:
    path = await house.stored(make_uploader())
    path.write_bytes(content)
    await house.scrub.check_due(DAY)
    assert await house.mark(path) is Damage.ALTERED


async def test_a_file_that_is_not_there_is_missing_and_hides_no_other(house: House) -> None:
    caller = make_uploader()
    missing, altered, whole = [await house.stored(caller) for _ in range(3)]
    missing.unlink()
    flip(altered)
    await house.scrub.check_due(DAY)
    assert [await house.mark(path) for path in (missing, altered, whole)] == ["missing", "altered", ""]


async def test_a_file_that_was_restored_loses_its_mark(house: House) -> None:
    caller = make_uploader()
    path = await house.stored(caller)
    flip(path)
    await house.scrub.check_due(DAY)
    flip(path)
    await house.let_a_month_pass(caller)
    await house.scrub.check_due(DAY)
    assert await house.mark(path) is Damage.NONE


async def test_a_complete_file_that_has_not_its_name_yet_is_not_missing(house: House) -> None:
    path = await house.stored(make_uploader())
    record = await house.record(path)
    part = path.parent / "transfers" / f"{record.upload_id}.0" / f"upload_{record.file_id}.part"
    part.parent.mkdir(parents=True)
    path.rename(part)
    await house.scrub.check_due(DAY)
    assert await house.mark(path) is Damage.NONE
    assert path.exists()


async def test_a_file_that_is_deleted_while_it_is_read_is_not_damaged(house: House) -> None:
    caller = make_uploader()
    path = await house.stored(caller)

    async def delete() -> None:
        flip(path)  # The blocks read from now on are others, as of a file that is being removed.
        await house.database["uploads"].update_one({"server_filename": path.name}, {"$set": {"status": "deleting"}})

    house.during = delete
    await house.scrub.check_due(DAY)
    assert await house.mark(path) is Damage.NONE


async def test_a_file_that_is_cut_while_it_is_read_is_altered(house: House) -> None:
    path = await house.stored(make_uploader())

    async def cut() -> None:
        path.write_bytes(b"")

    house.during = cut
    await house.scrub.check_due(DAY)
    assert await house.mark(path) is Damage.ALTERED


async def test_a_disk_that_is_not_mounted_is_not_damage(house: House) -> None:
    path = await house.stored(make_uploader())
    await house.scrub.check_due(DAY)
    away = house.api.folder.with_name("away")
    house.api.folder.rename(away)
    house.api.folder.mkdir()
    with pytest.raises(Unavailable):
        await house.scrub.check(await house.record(path))
    assert await house.mark(path) is Damage.NONE


async def test_a_storage_that_does_not_answer_is_not_damage_and_is_asked_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    paths = [await house.stored(caller) for _ in range(2)]
    flip(paths[1])

    async def away(_: Upload) -> int | None:
        raise Unavailable("The object storage does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(house.homes.get(StorageKind.FOLDER), "size", away)
        await house.scrub.check_due(DAY)
    await house.scrub.check_due(DAY)
    assert [await house.mark(path) for path in paths] == ["", "altered"]
    assert sum(house.blocks) == len(FILE)


async def test_a_damaged_file_cannot_be_claimed_and_one_that_is_claimed_stays(house: House) -> None:
    caller = make_uploader()
    name = await house.api.upload(caller, FILE)
    linked = await house.stored(caller)
    for path in (house.api.folder / caller.tenant_id / name, linked):
        flip(path)
        await house.scrub.check(await house.record(path))
    refused = await house.api.claim(caller, name, "v2")
    assert (refused.status, refused.body["code"]) == (404, "installer_damaged")
    assert (await house.api.claim(caller, linked.name)).status == 200


async def test_reading_leaves_the_disk_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("upload_service.maintenance.scrub.asyncio.sleep", sleep)
    for _ in range(40):
        await scrub.limit_rate(1 << 20)
    assert sum(slept) == pytest.approx(2.0)
