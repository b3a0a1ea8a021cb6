"""Backups during work restore everything that was acknowledged before, and nothing incomplete."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from auth_service.audit.store import OPERATORS
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import installers_of
from deploy.backup.records import BackupProblem, Client, DatabaseSnapshot, Entry, snapshot_read
from deploy.local.folder import DataFolder
from deploy.operator.stores import offline_stores
from tests.support.factories import KEY
from tests.support.faults.invariants import State, missing_versions, remaining_violations
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.faults.retrying_uploader import RetryingClient as Uploader
from tests.support.processes.backup import (
    RecordedProgress,
    addresses_of,
    audit_heads,
    back_up,
    delete_all_data,
    restore_documents,
    run_and_kill,
)
from tests.support.processes.cluster import Cluster
from tests.support.processes.pkgrepo_command import pkgrepo
from tests.support.servers.object_storage import ObjectServer
from tests.support.system.publishing import Published, add_package, package_id, publish, send_chunk, upload
from tests.support.system.services import Api
from tests.support.wait import until
from upload_service.settings import StorageSettings
from upload_service.storage.s3 import S3Storage

pytestmark = pytest.mark.full  # test_changed_backup.py and ../test_operator_rights.py have samples.


@pytest.fixture(scope="module")
async def published(cluster: Cluster) -> list[Published]:
    """Several versions of a tenant, so a backup can be interrupted between two."""
    api, name = await cluster.services.tenant(), package_id()
    await add_package(api, name)
    return [await publish(api, name, f"1.{number}") for number in range(5)]


async def test_a_restore_returns_all_acknowledged_work(cluster: Cluster, tmp_path: Path) -> None:
    api, content = await cluster.services.tenant(client_authentication=True), os.urandom(2000)
    client = (await api.call("POST", "add_client", data={"client_name": "pc-1"})).body
    uploads = cluster.mongo["upload"]["uploads"]
    for file_id in ("halfway", "given-up"):
        assert (await send_chunk(api, file_id, content, 0, 1000)).status == 200
    await uploads.update_one({"tenant_id": api.tenant_id, "file_id": "given-up"}, {"$set": {"status": "deleting"}})
    waiting = await upload(api, content)
    await wait_until_announced(cluster, api.tenant_id)
    unheard = {"tenant_id": api.tenant_id, "server_filename": waiting}  # as during its announcement
    await cluster.mongo["catalog"]["finished_uploads"].delete_one(unheard)
    await uploads.update_one(unheard, {"$set": {"updated_at": datetime.now(UTC) - timedelta(hours=23)}})
    async with run_publishers(api) as work:
        await work.wait_for_progress()
        remaining, removed, *deleted = work.published
        await _delete(api, [removed])
        (status, output), *_ = await asyncio.gather(
            pkgrepo("backup", str(tmp_path), **cluster.environment), work.wait_for_progress(), _delete(api, deleted)
        )
        assert status == 0, output
        await work.wait_for_progress()
    await delete_all_data(cluster)
    status, output = await pkgrepo("restore", str(tmp_path), **cluster.environment)
    assert status == 0, output
    record = await uploads.find_one(unheard)
    assert record is not None
    assert datetime.now(UTC) - record["updated_at"] < timedelta(hours=1), "it would soon be taken for a leftover"
    await cluster.restart_exited()
    assert (await api.call("GET", "test")).status == 401
    again = await api.signed_in()
    assert await missing_versions(again, [remaining]) == []
    assert (await again.call("GET", "get_specific_package_version", removed.uid)).status == 404
    answer = await api.anonymous().call("POST", "get_packages", data={"auth_token": client["auth_token"]})
    assert answer.status == 200
    assert await audit_heads(addresses_of(cluster), api.tenant_id, OPERATORS)
    given_up = await again.call("DELETE", "upload_package_version", headers={"X-File-ID": "given-up"})
    assert given_up.status in {200, 404}  # 404 if the collector has finished the deletion.
    uploader = Uploader(again)
    await uploader.upload(content, chunk=1000, file_id="halfway")
    await uploader.publish(work.package_id, "2.0", os.urandom(100))
    await cluster.age_tenant(api.tenant_id, 61)
    await wait_until_announced(cluster, api.tenant_id)
    await until(lambda: _nothing_is_being_deleted(cluster, api.tenant_id))  # The backup has deletions halfway.
    assert await remaining_violations(cluster, [api.tenant_id], timeout=60) == []
    finished = cluster.mongo["catalog"]["finished_uploads"].find({"tenant_id": api.tenant_id})
    assert "given-up" not in [upload.get("file_id") for upload in await finished.to_list()]


async def _nothing_is_being_deleted(cluster: Cluster, tenant_id: str) -> bool:
    state = await State.read(cluster.mongo, tenant_id)
    return not [sentence for sentence in state.unsettled() if sentence.endswith("is deleting")]


async def test_a_killed_backup_continues_where_it_stopped(
    cluster: Cluster, published: Sequence[Published], tmp_path: Path
) -> None:
    killed = await run_and_kill(
        "deploy.backup.installers", "sync_folder", "backup", str(tmp_path), **cluster.environment
    )
    assert killed == -9
    folder = BackupFolder(tmp_path)
    assert folder.names() == []
    copies = {path: path.stat().st_mtime_ns for path in tmp_path.glob("files/*/*")}
    assert len(copies) == 3
    backup = await back_up(cluster, tmp_path)
    assert folder.names() == [backup.name]
    assert backup.copied == len(list(tmp_path.glob("files/*/*"))) - 3
    assert {path: path.stat().st_mtime_ns for path in copies} == copies


async def test_a_backup_has_records_only_with_their_files(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api, name = await cluster.services.tenant(), package_id()
    await add_package(api, name)
    passing: list[Published] = []

    async def in_between(client: Client, read: Callable[[DatabaseSnapshot], Awaitable[list[Entry]]]) -> list[Entry]:
        first = not passing
        if first:
            passing.extend([await publish(api, name, "1.0"), await publish(api, name, "2.0")])
        records = await snapshot_read(client, read)
        if first:
            await _delete(api, passing[:1])
        return records

    monkeypatch.setattr("deploy.backup.creator.snapshot_read", in_between)
    backup = await back_up(cluster, tmp_path)
    assert backup.lacking == {}
    named = [
        backup.folder.file(api.tenant_id, upload.server_filename).read_bytes()
        for upload in installers_of(backup.folder.path / backup.name)
        if upload.tenant_id == api.tenant_id
    ]
    assert named == [passing[1].content]


async def test_a_second_backup_copies_and_counts_only_new_files(
    cluster: Cluster, published: Sequence[Published], tmp_path: Path
) -> None:
    api, name = await cluster.services.tenant(), package_id()
    await add_package(api, name)
    passing = await publish(api, name, "1.0")
    first = await back_up(cluster, tmp_path)
    await _delete(api, [passing])
    new = await publish(api, name, "2.0")
    second = await back_up(cluster, tmp_path)
    assert second.copied == 1
    assert isinstance(second.progress, RecordedProgress)
    total = sum(path.stat().st_size for path in tmp_path.glob("files/*/*")) - len(passing.content)
    assert second.progress.phases == [("checking", total), ("copying", len(new.content))]
    assert first.folder.keep_newest(1) == [first.name]
    assert first.folder.names() == [second.name]
    assert len(list((tmp_path / "files" / api.tenant_id).iterdir())) == 1


async def test_a_backup_names_damaged_installers_and_has_all_others(cluster: Cluster, tmp_path: Path) -> None:
    api, name = await cluster.services.tenant(), package_id()
    await add_package(api, name)
    for version in ("1.0", "2.0"):
        await publish(api, name, version)
    damaged, lost = (path for path in (cluster.stores.installers / api.tenant_id).iterdir() if path.is_file())
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    lost.rename(lost.with_name("elsewhere"))
    backup = await back_up(cluster, tmp_path)
    assert backup.lacking == {f"{api.tenant_id}/{damaged.name}": "altered", f"{api.tenant_id}/{lost.name}": "missing"}
    damaged.write_bytes(whole)
    lost.with_name("elsewhere").rename(lost)
    assert (await back_up(cluster, tmp_path)).lacking == {}


async def test_a_folder_of_another_database_is_rejected(
    cluster: Cluster, published: Sequence[Published], tmp_path: Path
) -> None:
    with pytest.raises(BackupProblem, match="does not belong to this database"):
        await back_up(cluster, tmp_path / "backups", installers=tmp_path)


async def test_a_backup_with_check_replaces_a_damaged_copy(
    cluster: Cluster, published: Sequence[Published], tmp_path: Path
) -> None:
    await back_up(cluster, tmp_path)
    rotten = next(tmp_path.glob("files/*/*"))
    whole = rotten.read_bytes()
    rotten.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert (await back_up(cluster, tmp_path)).copied == 0
    assert (await back_up(cluster, tmp_path, check=True)).copied == 1
    assert rotten.read_bytes() == whole


async def test_a_restore_is_rejected_while_services_run(
    cluster: Cluster, published: Sequence[Published], tmp_path: Path
) -> None:
    await back_up(cluster, tmp_path)
    with pytest.raises(BackupProblem, match="upload_service: connected to the databases; stop every service first"):
        await restore_documents(tmp_path, addresses_of(cluster))


async def test_a_damaged_backup_is_rejected_until_it_is_repaired(
    cluster: Cluster,
    published: Sequence[Published],
    tmp_path: Path,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backups, data = tmp_path / "backups", DataFolder(tmp_path / "data")
    await back_up(cluster, backups)
    settings = {**object_server.settings(uuid4().hex), "installer_storage": "s3"}
    for name, text in settings.items():
        monkeypatch.setenv(name.upper(), text)
    damaged = max(backups.glob("files/*/*"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    async with offline_stores(data) as where:
        with pytest.raises(BackupProblem, match=r"its AUDIT_KEY.*its CLIENT_TOKEN_KEY"):
            await restore_documents(backups, where)
    for file in ("audit-key", "keys/client-token"):
        (data.path / file).write_text(KEY)
    async with offline_stores(data) as where:
        with pytest.raises(BackupProblem, match=f"{damaged.parent.name}/{damaged.name}"):
            await restore_documents(backups, where)
        damaged.write_bytes(whole)
        assert (await restore_documents(backups, where)).services_stopped
        with pytest.raises(BackupProblem, match="the databases are not empty"):
            await restore_documents(backups, where)
    home = StorageSettings(**settings).object_storage
    assert home
    stored = {f"{entry.tenant_id}/{entry.server_filename}" async for entry in S3Storage(home).list_files()}
    assert stored == {str(path.relative_to(backups / "files")) for path in backups.glob("files/*/*")}


async def _delete(api: Api, versions: Sequence[Published]) -> None:
    for version in versions:
        form = {"versions_uids": version.uid}
        answer = await api.call("DELETE", "delete_package_version", version.package_id, data=form)
        assert answer.status == 200, answer.body
