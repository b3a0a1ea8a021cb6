"""`pkgrepo scrub` beside a storage that cannot read some of its objects."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import typer

from common.errors import Unavailable
from common.mongo import MongoDatabase, open_database
from deploy.cli import maintenance
from deploy.cli.maintenance import ScrubRun
from deploy.local.folder import Addresses
from deploy.operator.stores import Storage, StoreAddresses
from tests.support.servers.object_faults import ObjectFaults
from tests.support.services.storage_pair import StoragePair
from upload_service.model import Damage, StorageKind


async def scrub(storages: StoragePair, mongo_url: str, monkeypatch: pytest.MonkeyPatch) -> ScrubRun:
    """Run the command for all tenants."""

    @asynccontextmanager
    async def opened(_: str, name: str) -> AsyncIterator[MongoDatabase]:
        if name == "upload":
            yield storages.database
        else:
            async with open_database(mongo_url, f"{storages.database.name}_catalog") as database:
                yield database

    async def accept(*_: object) -> None: ...

    monkeypatch.setattr(maintenance, "open_database", opened)
    monkeypatch.setattr(maintenance, "_require_tenant", accept)
    run = ScrubRun(Storage(storages.root, storages.backends, storages.staging, StorageKind.S3), None)
    await run.run(StoreAddresses(Addresses("", mongo_url, ""), storages.root, None))
    return run


async def test_an_unreadable_object_is_named_and_the_others_are_checked(
    faulty_storages: StoragePair,
    faults: ObjectFaults,
    mongo_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uploads = [await faulty_storages.add_installer(storage=StorageKind.S3) for _ in range(3)]
    faults.unreadable.add(uploads[0].server_filename)
    run = await scrub(faulty_storages, mongo_url, monkeypatch)
    with pytest.raises(typer.Exit) as stopped:
        run.report(as_json=False, is_complete=True)
    output = capsys.readouterr().out
    assert stopped.value.exit_code == 1
    assert uploads[0].server_filename in output
    assert "3 files were checked, 1 are damaged, 1 of them cannot be read." in output
    damages = [(await faulty_storages.record(upload))["damage"] for upload in uploads]
    assert damages == [Damage.UNREADABLE, Damage.NONE, Damage.NONE]


async def test_a_storage_that_does_not_respond_stops_the_command(
    faulty_storages: StoragePair, faults: ObjectFaults, mongo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await faulty_storages.add_installer(storage=StorageKind.S3)
    assert await faulty_storages.ownership.is_ours(StorageKind.S3)
    faults.unreadable.update([upload.server_filename, "id"])
    with pytest.raises(Unavailable):
        await scrub(faulty_storages, mongo_url, monkeypatch)
    assert (await faulty_storages.record(upload))["damage"] == Damage.NONE
