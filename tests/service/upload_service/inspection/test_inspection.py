"""Every upload is inspected once, by any replica, and in at most three attempts."""

import asyncio
import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import AsyncMock

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Overloaded, Unavailable
from common.mongo import MongoDatabase
from common.work import is_waiting
from tests.support.api import Answer
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.pe_builder import make_zip, program
from tests.support.servers.object_storage import ObjectServer
from tests.support.services.inspections import VERSION, BlockedReader, Reader, inspector, uploaded
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, sha256
from tests.support.wait import until
from upload_service.inspection import inspector as inspector_module
from upload_service.inspection import process
from upload_service.inspection.inspector import ATTEMPTS
from upload_service.inspection.model import Findings, Format, Reason, Signature, SignatureState, State
from upload_service.inspection.process import InstallerFiles, Unreadable, ends_of, read_installer
from upload_service.inspection.store import MongoInspectionStore
from upload_service.model import StorageKind, Upload
from upload_service.settings import StorageSettings, UploadSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.store import INSPECT

LONG_AGO = "2001-01-01T00:00:00+00:00"
NOTHING_FOUND: dict[str, Any] = {
    "reason": "",
    "file_type": "",
    "file_architect": "",
    "file_scope": "",
    "package_version": "",
    "package_name": "",
    "package_publisher": "",
    "productcode": "",
    "upgradecode": "",
    "package_family_name": "",
    "signature_sha256": "",
    "nested": [],
    "signer": None,
}


async def inspected(api: UploadApi, caller: Caller, name: str) -> Answer:
    """The response without the verdict about signatures."""
    answer = await api.service.call(caller, "GET", "inspect_upload", name)
    answer.body.pop("signature", None)
    return answer


async def settled(api: UploadApi, caller: Caller, name: str) -> Answer:
    """The response when the inspection is finished."""

    async def done() -> bool:
        return bool((await inspected(api, caller, name)).body["state"] != "waiting")

    await until(done)
    return await inspected(api, caller, name)


async def test_an_upload_is_inspected_and_returns_its_findings(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, MACHINE_MSI, name="setup.msi")
    first = await inspected(api, caller, name)
    answer = await settled(api, caller, name)
    assert first.status == 200
    assert first.body in ({"server_filename": name, "state": "waiting", **NOTHING_FOUND}, answer.body)
    assert answer.body == {
        "server_filename": name,
        "state": "done",
        "reason": "",
        "file_type": "MSI",
        "file_architect": "x64",
        "file_scope": "machine",
        "package_version": "1.2.3.4",
        "package_name": "Tiny Product",
        "package_publisher": "Tiny Works GmbH",
        "productcode": "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}",
        "upgradecode": "{6F1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D}",
        "package_family_name": "",
        "signature_sha256": "",
        "nested": [],
        "signer": {"subject": "Tiny Works GmbH", "issuer": "Tiny Trust Code Signing CA", "verified": False},
    }


async def test_a_claim_of_a_signed_package_returns_its_signature_digest(api: UploadApi) -> None:
    caller = make_uploader()
    signature = b"PKCX and a signature"
    identity = '<Package><Identity Name="Tiny.App" Publisher="CN=Tiny" Version="1.0.0.0"/></Package>'
    content = make_zip({"AppxManifest.xml": identity, "AppxSignature.p7x": signature})
    name = await api.upload(caller, content, name="tiny.msix")
    answer = await settled(api, caller, name)
    assert answer.body["signature_sha256"] == sha256(signature)
    assert (await api.claim(caller, name)).body["signature_sha256"] == sha256(signature)


async def test_an_upload_is_inspected_without_a_request(settings: UploadSettings, database: MongoDatabase) -> None:
    caller = make_uploader()
    async with serving_uploads(settings) as api:
        await api.upload(caller, MACHINE_MSI)
        done = {"tenant_id": caller.tenant_id, "inspection": "done", "inspected.format": "MSI"}

        async def is_inspected() -> bool:
            return await database["uploads"].find_one(done) is not None

        await until(is_inspected)


async def test_a_file_that_cannot_be_inspected_can_be_claimed(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, MACHINE_MSI[:1000])
    answer = await settled(api, caller, name)
    assert answer.body == {**NOTHING_FOUND, "server_filename": name, "state": "failed", "reason": "damaged"}
    assert (await api.claim(caller, name)).status == 200
    assert (await inspected(api, caller, name)).body == answer.body


async def test_a_name_that_no_file_of_the_tenant_has_is_unknown(api: UploadApi) -> None:
    other = await api.upload(make_uploader(), b"MZ")
    for unknown in ("../../etc/passwd", "0" * 32 + ".exe", "0" * 32 + ".sh", "x", other):
        answer = await inspected(api, make_uploader(), unknown)
        assert (answer.status, answer.body["code"]) == (404, "installer_not_found"), unknown


async def test_one_of_many_replicas_inspects_a_file(settings: UploadSettings, database: MongoDatabase) -> None:
    contents = [b"%d" % number for number in range(8)]
    await uploaded(settings, make_uploader(), *contents)
    reader = Reader()
    replicas = [inspector(database, settings, reader) for _ in range(4)]
    await asyncio.gather(*(replica.worker().run_due() for replica in replicas))
    await asyncio.gather(*(replica.worker().run_due() for replica in replicas))
    assert sorted(reader.readings) == sorted(contents)


async def test_an_unavailable_storage_does_not_count_as_an_attempt(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, reader = make_uploader(), Reader(failure=Unavailable("away"))
    (name,) = await uploaded(settings, caller, b"fine")
    replica = inspector(database, settings, reader)
    for _ in range(ATTEMPTS + 1):
        await replica.worker().run_due()
        await database["uploads"].update_many(is_waiting(INSPECT), [{"$set": {"work.inspect.due": "$$NOW"}}])
    assert len(reader.readings) == ATTEMPTS + 1
    reader.failure = None
    await replica.worker().run_due()
    assert (await replica.find(caller.tenant_id, name)).state is State.DONE


@dataclass
class StartingReader(Reader):
    """Starts a process for each file."""

    async def read(self, file: BinaryIO, suffix: str) -> Findings:
        self.readings.append(b"")
        return await read_installer(file, suffix)


@pytest.mark.parametrize(
    "number",
    [
        errno.EAGAIN,
        pytest.param(errno.ENOMEM, marks=pytest.mark.full),
        pytest.param(errno.EMFILE, marks=pytest.mark.full),
    ],
)
async def test_a_failed_process_start_does_not_count_as_an_attempt(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    caller, reader = make_uploader(), StartingReader()
    (name,) = await uploaded(settings, caller, MACHINE_MSI)
    replica = inspector(database, settings, reader)
    with monkeypatch.context() as busy:
        busy.setattr(asyncio, "create_subprocess_exec", AsyncMock(side_effect=OSError(number, "busy")))
        for _ in range(ATTEMPTS + 1):
            await replica.worker().run_due()
            await database["uploads"].update_many(is_waiting(INSPECT), [{"$set": {"work.inspect.due": "$$NOW"}}])
        with pytest.raises(Unavailable):
            await replica.inspect(caller.tenant_id, name)
        await database["uploads"].update_many(is_waiting(INSPECT), [{"$set": {"work.inspect.due": "$$NOW"}}])
    assert len(reader.readings) == ATTEMPTS + 2
    await replica.worker().run_due()
    assert (await replica.find(caller.tenant_id, name)).state is State.DONE


async def test_the_time_of_a_verdict_is_the_one_of_the_database(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, store = make_uploader(), MongoInspectionStore(database, VERSION)
    (name,) = await uploaded(settings, caller, b"signed")
    lease = await store.queue.lease()
    assert lease is not None
    await store.mark_done(lease, Findings(format=Format.EXE, signature=Signature(SignatureState.VALID, at=LONG_AGO)))
    upload = await store.find(caller.tenant_id, name)
    assert upload is not None
    assert upload.findings.signature is not None
    assert upload.findings.signature.at > LONG_AGO  # Approvals are compared with it.


async def test_a_file_older_than_inspections_is_inspected_on_request(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, reader = make_uploader(), Reader()
    (name,) = await uploaded(settings, caller, b"old")
    await database["uploads"].update_many({}, {"$unset": {"work": ""}})
    replica = inspector(database, settings, reader)
    await replica.worker().run_due()
    assert reader.readings == []
    assert (await replica.find(caller.tenant_id, name)).state is State.PENDING
    await replica.worker().run_due()
    assert (await replica.find(caller.tenant_id, name)).state is State.DONE


async def test_a_requested_inspection_comes_before_all_others(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller, reader = make_uploader(), Reader(failure=Unreadable(Reason.DAMAGED))
    *_, last = await uploaded(settings, caller, b"1", b"2", b"3")
    replica = inspector(database, settings, reader)
    assert (await replica.inspect(caller.tenant_id, last)).state is State.FAILED
    assert (await replica.inspect(caller.tenant_id, last)).reason == "damaged"
    assert reader.readings == [b"3"]


async def test_an_inspection_running_elsewhere_is_answered_as_unavailable(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_module, "POLL_PAUSE", 0)
    caller, store = make_uploader(), MongoInspectionStore(database, VERSION)
    (name,) = await uploaded(settings, caller, b"1")
    assert await store.queue.lease() is not None
    with pytest.raises(Unavailable):
        await inspector(database, settings, Reader()).inspect(caller.tenant_id, name)


async def test_inspections_alternate_between_tenants(settings: UploadSettings, database: MongoDatabase) -> None:
    reader = Reader()
    await uploaded(settings, make_uploader(), b"1", b"2", b"3")
    await uploaded(settings, make_uploader(), b"other")
    await inspector(database, settings, reader).worker().run_due()
    assert b"other" in reader.readings[:2]
    assert [reading for reading in reader.readings if reading != b"other"] == [b"1", b"2", b"3"]


async def test_slow_files_delay_no_requested_inspection_of_another_tenant(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_module, "SLOT_TIMEOUT", 60)
    hostile, other, reader = make_uploader(), make_uploader(), BlockedReader()
    first, second, *_ = await uploaded(settings, hostile, *[b"hostile %d" % number for number in range(5)])
    (name,) = await uploaded(settings, other, b"good")
    replica = inspector(database, settings, reader)
    names = (first, second)
    async with asyncio.TaskGroup() as tasks:
        for hostile_name in names:
            tasks.create_task(replica.inspect(hostile.tenant_id, hostile_name))

        async def reading_started() -> bool:
            return reader.started_reads > 0

        await until(reading_started)
        background = tasks.create_task(replica.worker().run_due())
        state = (await replica.inspect(other.tenant_id, name)).state
        reads_before_release = reader.started_reads
        reader.released.set()
    assert background.done()
    assert (state, reads_before_release) == (State.DONE, 1)


async def test_slow_files_delay_no_background_inspection_of_another_tenant(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_module, "SLOT_TIMEOUT", 600.0)
    hostile, other, reader = make_uploader(), make_uploader(), BlockedReader()
    first, *_ = await uploaded(settings, hostile, b"hostile 1", b"hostile 2")
    (name,) = await uploaded(settings, other, b"good")
    replica = inspector(database, settings, reader)

    async def reading_started() -> bool:
        return reader.started_reads > 0

    async def done() -> bool:
        return (await replica.find(other.tenant_id, name)).state is State.DONE

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(replica.inspect(hostile.tenant_id, first))
        await until(reading_started)
        tasks.create_task(replica.worker().run_due())
        await until(done)
        reads_before_release = reader.started_reads
        reader.released.set()
    assert reads_before_release == 1


async def test_an_inspection_without_a_free_process_is_refused_as_overload(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, reader = make_uploader(), BlockedReader()
    first, second = await uploaded(settings, caller, b"hostile", b"good")
    replica = inspector(database, settings, reader)

    async def reading_started() -> bool:
        return reader.started_reads > 0

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(replica.inspect(caller.tenant_id, first))
        await until(reading_started)
        monkeypatch.setattr(inspector_module, "SLOT_TIMEOUT", 0.01)
        with pytest.raises(Overloaded):
            await replica.inspect(caller.tenant_id, second)
        reader.released.set()


async def test_a_claim_returns_the_windows_identifiers(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, MACHINE_MSI)
    at_once = await api.post(caller, "inspect_installer", server_filename=name)
    claimed = await api.claim(caller, name)
    at_once.body.pop("signature")
    assert at_once.body == (await inspected(api, caller, name)).body
    assert (await api.post(make_uploader(), "inspect_installer", server_filename=name)).status == 404
    assert (at_once.status, at_once.body["state"], at_once.body["file_type"]) == (200, "done", "MSI")
    assert claimed.body == {
        "size": len(MACHINE_MSI),
        "sha256": sha256(MACHINE_MSI),
        "product_code": "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}",
        "upgrade_code": "{6F1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D}",
        "is_withheld": False,
    }


async def test_a_deleted_upload_is_not_inspected(settings: UploadSettings, database: MongoDatabase) -> None:
    caller, reader = make_uploader(), Reader()
    await uploaded(settings, caller, b"going")
    await database["uploads"].update_many({}, {"$set": {"status": "deleting"}})
    await inspector(database, settings, reader).worker().run_due()
    assert reader.readings == []


@pytest.mark.parametrize(("end", "hole"), [(1 << 20, 0), (1024, 1)])
async def test_only_the_ends_of_an_installer_in_object_storage_are_fetched(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, hole: int
) -> None:
    content = program(sections=[(b".text", b"x" * 500)], overlay=b"carried" * 10_000)
    monkeypatch.setattr(process, "END", end)
    storage = StorageSettings(**object_server.settings("inspected")).object_storage
    assert storage is not None
    objects = S3Storage(storage)
    folder = FolderStorage(tmp_path, PartFiles(tmp_path))
    upload = Upload(
        "acme", "f", "0" * 32, len(content), storage=StorageKind.S3, server_filename="0" * 32, size=len(content)
    )
    (tmp_path / "source").write_bytes(content)
    await objects.put(upload, tmp_path / "source")
    async with InstallerFiles(storage_backends(folder, objects), folder, tmp_path).open(upload) as file:
        findings = await read_installer(file, "")
        file.seek(0)
        fetched = file.read()
    assert findings.format is Format.EXE
    assert fetched[:end] == content[:end]
    assert fetched[-end:] == content[-end:]
    assert (fetched != content) == bool(hole)
    assert len(fetched) == len(content)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_at_most_two_ends_of_a_file_are_fetched() -> None:
    assert ends_of(2 * process.END) == [(0, 2 * process.END)]
    assert sum(length for _, length in ends_of(1 << 40)) == 2 * process.END
