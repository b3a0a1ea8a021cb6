"""Restores from a folder that an attacker changed: they reject every change and write nothing outside."""

import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
import pytest
from pydantic import SecretStr

from auth_service.store import MongoBackupStore
from common.auth.sessions import Sessions
from common.mongo import MongoDatabase, open_database
from common.redis import open_redis
from deploy.backup.creator import BackupCreator
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import UPLOADS, installer_document
from deploy.backup.records import DATABASES, BackupProblem, make_seals
from deploy.local import servers
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses, open_storage
from deploy.operator.tenants import open_operator
from tests.support.factories import KEY, KEYS, make_tenant
from tests.support.processes.backup import RecordedProgress, restore_documents
from tests.support.processes.pkgrepo_command import pkgrepo
from upload_service.model import Upload

CONTENT = b"the bytes of an installer"
NAME = f"{'1' * 32}.exe"
UPLOAD = Upload(
    tenant_id="acme",
    file_id="setup",
    upload_id="1" * 32,
    total=len(CONTENT),
    server_filename=NAME,
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    version_uid="3d6f0a5e-2b1f-4f68-9c1d-5e8a4b3c2d1f",
)
OTHER_KEY = "another-key-that-is-long-enough-to-be-one"


@pytest.fixture(scope="module")
async def mongo_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A separate MongoDB, because the databases have fixed names."""
    async with servers.mongod(tmp_path_factory.mktemp("mongodb")) as url:
        yield url


@pytest.fixture
async def upload(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    """The database `upload`."""
    async with open_database(mongo_url, "upload") as database:
        yield database


@pytest.fixture
async def where(mongo_url: str, redis_url: str, upload: MongoDatabase, tmp_path: Path) -> StoreAddresses:
    """An empty installation, after a backup of another one."""
    await drop_databases(upload)
    addresses = Addresses("", mongo_url, redis_url)
    before = StoreAddresses(addresses, tmp_path / "before", SecretStr(KEY), KEYS)
    (tmp_path / "before" / "acme").mkdir(parents=True)
    (tmp_path / "before" / "acme" / NAME).write_bytes(CONTENT)
    await upload["uploads"].insert_one(installer_document(UPLOAD))
    async with open_operator(addresses) as operator:
        await operator.tenants.create(make_tenant(tenant_id="acme"))
    backup = BackupCreator(
        BackupFolder(tmp_path / "backups"), open_storage(before.installers), RecordedProgress(), check=False
    )
    with backup.folder.locked():
        await backup.run(before)
    await drop_databases(upload)
    (tmp_path / "after" / "installers").mkdir(parents=True)
    return replace(before, installers=tmp_path / "after" / "installers")


async def drop_databases(database: MongoDatabase) -> None:
    for name in DATABASES:
        await database.client.drop_database(name)


def newest(backups: Path) -> Path:
    return backups / BackupFolder(backups).load(None).name


def change_upload(backups: Path, *, audit_key: str = "", **fields: Any) -> None:
    """Change the installer's record and its digest in the manifest, and with a key also the seal."""
    folder = newest(backups)
    content = bson.encode({**bson.decode((folder / UPLOADS).read_bytes()), **fields})
    (folder / UPLOADS).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["records"]:
        if entry["name"] == UPLOADS:
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    if audit_key:
        (folder / "manifest.seal").write_text(make_seals(SecretStr(audit_key), folder.name, text)[0])


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "id"}


async def test_an_unchanged_backup_is_restored(upload: MongoDatabase, where: StoreAddresses, tmp_path: Path) -> None:
    await restore_documents(tmp_path / "backups", where)
    assert await upload["uploads"].distinct("tenant_id") == ["acme"]
    assert files_below(tmp_path / "after") == {f"installers/acme/{NAME}"}


async def test_a_restore_ends_the_sessions_of_all_tenants(where: StoreAddresses, tmp_path: Path) -> None:
    async with open_redis(where.addresses.redis_url) as redis:
        sessions = Sessions(redis, keys=KEYS, lifetime=3600, idle=3600)
        opened = [sessions.parse_token(await sessions.open(tenant_id, "ada")) for tenant_id in ("acme", "other")]
        assert [await sessions.is_alive(session) for session in opened] == [True, True]
        await restore_documents(tmp_path / "backups", where)
        assert [await sessions.is_alive(session) for session in opened] == [False, False]


async def test_the_last_backup_of_a_restored_installation_is_the_restored_one(
    upload: MongoDatabase, where: StoreAddresses, tmp_path: Path
) -> None:
    await restore_documents(tmp_path / "backups", where)
    restored = BackupFolder(tmp_path / "backups").load(None).manifest.made_at
    last = await MongoBackupStore(upload.client["auth"]).last_success()
    assert last == restored.replace(microsecond=restored.microsecond // 1000 * 1000)


PATHS: Sequence[Mapping[str, str]] = (
    {"tenant_id": "../../pwn", "server_filename": "cronjob"},
    {"tenant_id": "/pwn"},
    {"tenant_id": ".."},
    {"server_filename": "../../../pwn"},
    {"server_filename": "/etc/cron.d/pwn"},
    {"server_filename": ""},
    {"file_id": "../../../pwn"},
    {"announced_as": "../../../pwn"},
    {"upload_id": "../../../pwn"},
    {"upload_id": "*"},
    {"part": "0/../../../pwn"},
    {"status": "deleting", "upload_id": "../../../pwn"},
)


@pytest.mark.parametrize("audit_key", ["", KEY], ids=["without a seal", "sealed"])
async def test_a_record_with_a_path_is_rejected_before_any_write(
    upload: MongoDatabase, where: StoreAddresses, tmp_path: Path, audit_key: str
) -> None:
    accepted = []
    for number, fields in enumerate(PATHS):
        folder = tmp_path / str(number)
        backups, names = folder / "backups", {"tenant_id": "acme", "server_filename": NAME, **fields}
        shutil.copytree(tmp_path / "backups", backups)
        change_upload(backups, audit_key=audit_key, **fields)
        payload = Path(os.path.normpath(f"{backups}/files/{names['tenant_id']}/{names['server_filename']}"))
        if payload.is_relative_to(folder) and not payload.exists():
            payload.parent.mkdir(parents=True, exist_ok=True)
            payload.write_bytes(CONTENT)
        before = files_below(tmp_path)
        try:
            await restore_documents(backups, where, without_seal=not audit_key)
        except BackupProblem as problem:
            if "upload.uploads.bson" in str(problem) and files_below(tmp_path) == before:
                continue
        accepted.append(fields)
    assert accepted == []
    assert await upload["uploads"].count_documents({}) == 0


async def test_a_changed_backup_is_rejected_before_any_write(
    upload: MongoDatabase, where: StoreAddresses, tmp_path: Path
) -> None:
    change_upload(tmp_path / "backups", size=1)
    with pytest.raises(BackupProblem, match=r"was changed or renamed after it was made.*Do not restore it"):
        await restore_documents(tmp_path / "backups", where)
    assert await upload.client["auth"].list_collection_names() == []
    assert files_below(tmp_path / "after") == set()


async def test_a_backup_without_a_seal_is_restored_only_on_request(
    upload: MongoDatabase, where: StoreAddresses, tmp_path: Path
) -> None:
    (newest(tmp_path / "backups") / "manifest.seal").unlink()
    with pytest.raises(BackupProblem, match=r"has no seal.*Do not restore it"):
        await restore_documents(tmp_path / "backups", where)
    await restore_documents(tmp_path / "backups", where, without_seal=True)
    assert await upload["uploads"].distinct("tenant_id") == ["acme"]
    entry = await upload.client["auth"]["audit_log"].find_one({"operation": "restore"})
    assert entry is not None
    assert {"name": "seal", "value": "not verified"} in entry["changes"] + entry["target"]


async def test_other_keys_do_not_disable_the_seal(where: StoreAddresses, tmp_path: Path) -> None:
    other = replace(where, audit_key=SecretStr(OTHER_KEY))
    with pytest.raises(BackupProblem, match="made under other keys"):
        await restore_documents(tmp_path / "backups", other)
    with pytest.raises(BackupProblem, match="its seal is of another AUDIT_KEY"):
        await restore_documents(tmp_path / "backups", other, other_keys=True)


async def test_a_seal_is_verified_with_the_previous_key_too(
    upload: MongoDatabase, where: StoreAddresses, tmp_path: Path
) -> None:
    await restore_documents(tmp_path / "backups", replace(where, audit_key=SecretStr(f"{OTHER_KEY} {KEY}")))
    assert await upload["uploads"].distinct("tenant_id") == ["acme"]


async def test_a_link_instead_of_an_installer_is_rejected(where: StoreAddresses, tmp_path: Path) -> None:
    installer = tmp_path / "backups" / "files" / "acme" / NAME
    installer.rename(tmp_path / "elsewhere")
    installer.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupProblem, match="is a link, and backups have none"):
        await restore_documents(tmp_path / "backups", where)
    assert files_below(tmp_path / "after") == set()


async def test_a_pipe_instead_of_an_installer_is_reported_as_missing(where: StoreAddresses, tmp_path: Path) -> None:
    installer = tmp_path / "backups" / "files" / "acme" / NAME
    installer.unlink()
    os.mkfifo(installer)
    with pytest.raises(BackupProblem, match=f"the backup is damaged: acme/{NAME}"):
        await restore_documents(tmp_path / "backups", where)


async def test_a_backup_does_not_write_through_a_link(
    upload: MongoDatabase, where: StoreAddresses, tmp_path: Path
) -> None:
    await restore_documents(tmp_path / "backups", where)
    shutil.rmtree(tmp_path / "backups" / "files" / "acme")
    (tmp_path / "outside").mkdir()
    (tmp_path / "backups" / "files" / "acme").symlink_to(tmp_path / "outside")
    backup = BackupCreator(
        BackupFolder(tmp_path / "backups"), open_storage(where.installers), RecordedProgress(), check=False
    )
    with pytest.raises(BackupProblem, match="is a link, and backups have none"):
        await backup.run(where)
    assert files_below(tmp_path / "outside") == set()


async def test_two_records_of_one_file_are_rejected(where: StoreAddresses, tmp_path: Path) -> None:
    folder = newest(tmp_path / "backups")
    record = bson.decode((folder / UPLOADS).read_bytes())
    content = bson.encode(record) + bson.encode({**record, "_id": "second", "upload_id": "2" * 32, "file_id": "again"})
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["records"]:
        if entry["name"] == UPLOADS:
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / UPLOADS).write_bytes(content)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BackupProblem, match="two records with the same tenant_id, server_filename"):
        await restore_documents(tmp_path / "backups", where, without_seal=True)


async def test_the_command_explains_a_changed_backup(where: StoreAddresses, tmp_path: Path) -> None:
    change_upload(tmp_path / "backups", size=1)
    status, text = await pkgrepo(
        "restore",
        str(tmp_path / "backups"),
        MONGO_URL=where.addresses.mongo_url,
        REDIS_URL=where.addresses.redis_url,
        INSTALLERS=str(where.installers),
        AUDIT_KEY=KEY,
        CLIENT_TOKEN_KEY=KEY,
    )
    assert (status, "Choose another backup with --at" in text) == (1, True), text
