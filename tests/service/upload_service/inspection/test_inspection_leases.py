"""One replica at a time inspects a file, and an interrupted inspection is repeated soon."""

import asyncio

import pytest

from common.mongo import MongoDatabase
from tests.support.services.inspections import VERSION, BlockedReader, Reader, inspector, uploaded
from tests.support.services.upload import make_uploader
from tests.support.wait import until
from upload_service.inspection import inspector as inspector_module
from upload_service.inspection.inspector import ATTEMPTS
from upload_service.inspection.model import Findings, Format, Reason, State
from upload_service.inspection.store import MongoInspectionStore
from upload_service.settings import UploadSettings

LEASE = 30  # seconds


class Killed(BaseException):
    """The end of the process: nothing after it reaches the store."""


async def pass_time(database: MongoDatabase, seconds: float) -> None:
    earlier = {"inspecting_until": {"$subtract": ["$inspecting_until", seconds * 1000]}}
    await database["uploads"].update_many({"inspecting_until": {"$exists": True}}, [{"$set": earlier}])


async def test_a_file_that_kills_its_inspection_is_tried_three_times(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, reader = make_uploader(), Reader(failure=Killed())
    (name,) = await uploaded(settings, caller, b"poison")
    replica = inspector(database, settings, reader)
    for _ in range(ATTEMPTS):
        with pytest.raises(Killed):
            await replica.inspect_due()
        assert (await replica.find(caller.tenant_id, name)).state is State.PENDING
        await replica.inspect_due()  # No other replica takes it before its lease has expired.
        await pass_time(database, LEASE)
    await replica.inspect_due()
    assert len(reader.readings) == ATTEMPTS
    upload = await replica.find(caller.tenant_id, name)
    assert (upload.state, upload.reason) == (State.FAILED, Reason.GIVEN_UP)


async def test_a_stopped_inspection_is_due_at_once_and_is_no_attempt(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, reader = make_uploader(), BlockedReader()
    (name,) = await uploaded(settings, caller, b"hostile")
    for number in range(ATTEMPTS + 1):

        async def has_begun(number: int = number) -> bool:
            return reader.started_reads > number

        inspecting = asyncio.create_task(inspector(database, settings, reader).inspect_due())
        await until(has_begun)
        inspecting.cancel()
        await asyncio.wait([inspecting])
    reader.released.set()
    replica = inspector(database, settings, reader)
    await replica.inspect_due()
    assert (await replica.find(caller.tenant_id, name)).state is State.DONE


async def test_an_inspection_longer_than_its_lease_is_not_repeated(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_module, "RENEWAL_SECONDS", 0.01)
    caller, slow, other = make_uploader(), BlockedReader(), Reader()
    (name,) = await uploaded(settings, caller, b"hostile")
    inspecting = asyncio.create_task(inspector(database, settings, slow).inspect_due())

    async def is_leased() -> bool:
        is_held = {"$expr": {"$gt": ["$inspecting_until", "$$NOW"]}}
        return slow.started_reads > 0 and await database["uploads"].count_documents(is_held) == 1

    for _ in range(3):
        await until(is_leased)
        await inspector(database, settings, other).inspect_due()
        await pass_time(database, LEASE)
    await until(is_leased)
    slow.released.set()
    await inspecting
    assert (slow.readings, other.readings) == ([b"hostile"], [])
    assert (await inspector(database, settings, other).find(caller.tenant_id, name)).state is State.DONE


async def test_an_inspection_after_its_lease_changes_nothing(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, store = make_uploader(), MongoInspectionStore(database, VERSION)
    (name,) = await uploaded(settings, caller, b"slow")
    stale = await store.acquire_lease(caller.tenant_id)
    assert stale is not None
    await pass_time(database, LEASE)
    current = await store.acquire_lease(caller.tenant_id)
    assert current is not None
    assert not await store.renew(stale)
    assert await store.renew(current)
    await store.release(stale)
    await store.mark_failed(stale, Reason.TOO_LONG)
    await store.mark_done(current, Findings(format=Format.ZIP))
    await store.mark_done(stale, Findings(format=Format.EXE))
    upload = await store.find(caller.tenant_id, name)
    assert upload is not None
    assert (upload.state, upload.findings) == (State.DONE, Findings(format=Format.ZIP))
