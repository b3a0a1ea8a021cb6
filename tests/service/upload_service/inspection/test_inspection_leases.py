"""One replica at a time inspects a file, and an interrupted inspection is repeated soon."""

import asyncio

from common.mongo import MongoDatabase
from common.work import is_waiting
from tests.support.services.inspections import BlockedReader, Reader, inspector, uploaded
from tests.support.services.upload import make_uploader
from tests.support.wait import until
from upload_service.inspection.inspector import ATTEMPTS
from upload_service.inspection.model import Reason, State
from upload_service.settings import UploadSettings
from upload_service.store import INSPECT

LEASE = 30  # seconds


class Killed(BaseException):
    """The end of the process: nothing after it reaches the store."""


async def pass_time(database: MongoDatabase, seconds: float) -> None:
    earlier = {"work.inspect.due": {"$subtract": ["$work.inspect.due", seconds * 1000]}}
    await database["uploads"].update_many(is_waiting(INSPECT), [{"$set": earlier}])


async def test_a_file_that_kills_its_inspection_is_tried_three_times(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, reader = make_uploader(), Reader(failure=Killed())
    (name,) = await uploaded(settings, caller, b"poison")
    replica = inspector(database, settings, reader)
    for _ in range(ATTEMPTS):
        await replica.worker().run_due()
        assert (await replica.find(caller.tenant_id, name)).state is State.PENDING
        await replica.worker().run_due()  # No other replica takes it before its lease has expired.
        await pass_time(database, LEASE)
    await replica.worker().run_due()
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

        inspecting = asyncio.create_task(inspector(database, settings, reader).worker().run_due())
        await until(has_begun)
        inspecting.cancel()
        await asyncio.wait([inspecting])
    reader.released.set()
    replica = inspector(database, settings, reader)
    await replica.worker().run_due()
    assert (await replica.find(caller.tenant_id, name)).state is State.DONE
