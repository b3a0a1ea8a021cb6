"""Every upload is inspected once, by any replica, and in at most three attempts."""

import asyncio
import errno
from dataclasses import dataclass
from typing import BinaryIO
from unittest.mock import AsyncMock

import pytest

from common.errors import Overloaded, Unavailable
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.services.inspections import BlockedReader, Inspecting, Reader
from tests.support.services.upload import make_uploader, serving_uploads
from tests.support.wait import until
from upload_service.inspection import inspector as inspector_module
from upload_service.inspection.inspector import ATTEMPTS
from upload_service.inspection.model import Findings, Format, Reason, Signature, SignatureState, State
from upload_service.inspection.process import Unreadable, read_installer

LONG_AGO = "2001-01-01T00:00:00+00:00"
HOUR = 3600  # seconds; more than any pause between two attempts
LEASE = 30  # seconds


class Killed(BaseException):
    """The end of the process: nothing after it reaches the store."""


async def test_an_upload_is_inspected_without_a_request(inspecting: Inspecting) -> None:
    async with serving_uploads(inspecting.settings) as api:
        name = await api.upload(inspecting.caller, MACHINE_MSI)

        async def is_inspected() -> bool:
            return (await inspecting.find(name)).findings.format is Format.MSI

        await until(is_inspected)


async def test_a_deleted_upload_is_not_inspected(inspecting: Inspecting) -> None:
    reader = Reader()
    await inspecting.upload(b"going")
    await inspecting.database["uploads"].update_many({}, {"$set": {"status": "deleting"}})
    await inspecting.run(reader)
    assert reader.readings == []


async def test_an_unavailable_storage_does_not_count_as_an_attempt(inspecting: Inspecting) -> None:
    reader = Reader(failure=Unavailable("away"))
    (name,) = await inspecting.upload(b"fine")
    for _ in range(ATTEMPTS + 1):
        await inspecting.run(reader)
        await inspecting.let_time_pass(HOUR)
    assert len(reader.readings) == ATTEMPTS + 1
    await inspecting.run(Reader())
    assert (await inspecting.find(name)).state is State.DONE


@dataclass
class StartingReader(Reader):
    """Starts a process for each file."""

    async def read(self, file: BinaryIO, suffix: str) -> Findings:
        self.readings.append(b"")
        return await read_installer(file, suffix)


@pytest.mark.parametrize(
    "number", [errno.EAGAIN, *(pytest.param(each, marks=pytest.mark.full) for each in (errno.ENOMEM, errno.EMFILE))]
)
async def test_a_failed_process_start_does_not_count_as_an_attempt(
    inspecting: Inspecting, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    reader = StartingReader()
    (name,) = await inspecting.upload(MACHINE_MSI)
    with monkeypatch.context() as busy:
        busy.setattr(asyncio, "create_subprocess_exec", AsyncMock(side_effect=OSError(number, "busy")))
        for _ in range(ATTEMPTS + 1):
            await inspecting.run(reader)
            await inspecting.let_time_pass(HOUR)
        with pytest.raises(Unavailable):
            await inspecting.inspector(reader).inspect(inspecting.caller.tenant_id, name)
        await inspecting.let_time_pass(HOUR)
    assert len(reader.readings) == ATTEMPTS + 2
    await inspecting.run(reader)
    assert (await inspecting.find(name)).state is State.DONE


async def test_a_file_that_kills_its_inspection_is_tried_three_times(inspecting: Inspecting) -> None:
    reader = Reader(failure=Killed())
    (name,) = await inspecting.upload(b"poison")
    for _ in range(ATTEMPTS):
        await inspecting.run(reader)
        assert (await inspecting.find(name)).state is State.PENDING
        await inspecting.run(reader)  # No other replica takes it before its lease has expired.
        await inspecting.let_time_pass(LEASE)
    await inspecting.run(reader)
    assert len(reader.readings) == ATTEMPTS
    inspection = await inspecting.find(name)
    assert (inspection.state, inspection.reason) == (State.FAILED, Reason.GIVEN_UP)


async def test_the_time_of_a_verdict_is_the_one_of_the_database(inspecting: Inspecting) -> None:
    (name,) = await inspecting.upload(b"signed")
    lease = await inspecting.store.queue.lease()
    assert lease is not None
    signature = Signature(SignatureState.VALID, at=LONG_AGO)
    await inspecting.store.mark_done(lease, Findings(format=Format.EXE, signature=signature))
    stored = (await inspecting.find(name)).findings.signature
    assert stored is not None
    assert stored.at > LONG_AGO  # Approvals are compared with it.


async def test_a_file_older_than_inspections_is_inspected_on_request(inspecting: Inspecting) -> None:
    reader = Reader()
    (name,) = await inspecting.upload(b"old")
    await inspecting.database["uploads"].update_many({}, {"$unset": {"work": ""}})
    await inspecting.run(reader)
    assert reader.readings == []
    assert (await inspecting.find(name)).state is State.PENDING
    await inspecting.run(reader)
    assert (await inspecting.find(name)).state is State.DONE


async def test_a_requested_inspection_comes_before_all_others(inspecting: Inspecting) -> None:
    reader, tenant_id = Reader(failure=Unreadable(Reason.DAMAGED)), inspecting.caller.tenant_id
    *_, last = await inspecting.upload(b"1", b"2", b"3")
    for _ in range(2):
        inspection = await inspecting.inspector(reader).inspect(tenant_id, last)
        assert (inspection.state, inspection.reason) == (State.FAILED, "damaged")
    assert reader.readings == [b"3"]


async def test_an_inspection_running_elsewhere_is_answered_as_unavailable(
    inspecting: Inspecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_module, "POLL_PAUSE", 0)
    (name,) = await inspecting.upload(b"1")
    assert await inspecting.store.queue.lease() is not None
    with pytest.raises(Unavailable):
        await inspecting.inspector(Reader()).inspect(inspecting.caller.tenant_id, name)


async def test_inspections_alternate_between_tenants(inspecting: Inspecting) -> None:
    reader = Reader()
    await inspecting.upload(b"1", b"2", b"3")
    await inspecting.upload(b"other", caller=make_uploader())
    await inspecting.run(reader)
    assert b"other" in reader.readings[:2]
    assert [reading for reading in reader.readings if reading != b"other"] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("requested", [True, False])
async def test_slow_files_delay_no_inspection_of_another_tenant(
    inspecting: Inspecting, monkeypatch: pytest.MonkeyPatch, requested: bool
) -> None:
    monkeypatch.setattr(inspector_module, "SLOT_TIMEOUT", 600.0)
    other, reader = make_uploader(), BlockedReader()
    first, second, *_ = await inspecting.upload(*[b"hostile %d" % number for number in range(5)])
    (name,) = await inspecting.upload(b"good", caller=other)
    replica = inspecting.inspector(reader)

    async def is_done() -> bool:
        return (await inspecting.find(name, other)).state is State.DONE

    async with asyncio.TaskGroup() as tasks:
        for hostile in (first, second) if requested else (first,):
            tasks.create_task(replica.inspect(inspecting.caller.tenant_id, hostile))
        await reader.until_started()
        tasks.create_task(replica.worker().run_due())
        if requested:
            await replica.inspect(other.tenant_id, name)
        await until(is_done)
        reads_before_release = reader.started_reads
        reader.released.set()
    assert reads_before_release == 1


async def test_an_inspection_without_a_free_process_is_refused_as_overload(
    inspecting: Inspecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant_id, reader = inspecting.caller.tenant_id, BlockedReader()
    first, second = await inspecting.upload(b"hostile", b"good")
    replica = inspecting.inspector(reader)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(replica.inspect(tenant_id, first))
        await reader.until_started()
        monkeypatch.setattr(inspector_module, "SLOT_TIMEOUT", 0.01)
        with pytest.raises(Overloaded):
            await replica.inspect(tenant_id, second)
        reader.released.set()
