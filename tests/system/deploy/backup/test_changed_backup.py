"""Restores from a folder that an attacker changed: they reject every change and write nothing outside."""

import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses, open_storage
from deploy.operator.tenants import open_operator
from tests.support.factories import KEY, KEYS, make_tenant
from tests.support.processes.backup import RecordedProgress, restore_documents
from tests.support.samples.stored_installer import CONTENT, NAME, UPLOAD

OTHER_KEY = SecretStr("another-key-that-is-long-enough-to-be-one")


@pytest.fixture(scope="module")
async def upload(own_mongo_url: str) -> AsyncIterator[MongoDatabase]:
    """The database `upload`."""
    async with open_database(own_mongo_url, "upload") as database:
        yield database


@pytest.fixture(scope="module")
async def backup(
    own_mongo_url: str, redis_url: str, upload: MongoDatabase, tmp_path_factory: pytest.TempPathFactory
) -> StoreAddresses:
    """The addresses of an installation with one installer, after its backup into `../backups` of its installers."""
    folder = tmp_path_factory.mktemp("before")
    addresses = Addresses("", own_mongo_url, redis_url)
    where = StoreAddresses(addresses, folder / "installers", SecretStr(KEY), KEYS)
    (folder / "installers" / "acme").mkdir(parents=True)
    (folder / "installers" / "acme" / NAME).write_bytes(CONTENT)
    await upload["uploads"].insert_one(installer_document(UPLOAD))
    async with open_operator(addresses) as operator:
        await operator.tenants.create(make_tenant(tenant_id="acme"))
    await back_up(folder / "backups", where)
    return where


@pytest.fixture
async def where(backup: StoreAddresses, upload: MongoDatabase, tmp_path: Path) -> StoreAddresses:
    """An empty installation, beside the backup of another one."""
    assert backup.installers
    shutil.copytree(backup.installers.with_name("backups"), tmp_path / "backups")
    for name in DATABASES:
        await upload.client.drop_database(name)
    (tmp_path / "after" / "installers").mkdir(parents=True)
    return replace(backup, installers=tmp_path / "after" / "installers")


async def back_up(backups: Path, where: StoreAddresses) -> None:
    creator = BackupCreator(BackupFolder(backups), open_storage(where.installers), RecordedProgress(), check=False)
    with creator.folder.locked():
        await creator.run(where)


def newest(backups: Path) -> Path:
    return backups / BackupFolder(backups).load(None).name


def change_uploads(
    backups: Path, change: Callable[[dict[str, Any]], Sequence[dict[str, Any]]], audit_key: str = ""
) -> None:
    """Replace the installer's record and its digest in the manifest, and with a key also the seal."""
    folder = newest(backups)
    content = b"".join(map(bson.encode, change(bson.decode((folder / UPLOADS).read_bytes()))))
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
    assert await upload["uploads"].distinct("tenant_id") == ["acme"]
    assert files_below(tmp_path / "after") == {f"installers/acme/{NAME}"}
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
        change_uploads(backups, lambda record, fields=fields: [{**record, **fields}], audit_key)  # type: ignore[misc]
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
    change_uploads(tmp_path / "backups", lambda record: [{**record, "size": 1}])
    reason = r"was changed or renamed after it was made.*Do not restore it.*Choose another backup with --at"
    with pytest.raises(BackupProblem, match=reason):
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
    other = replace(where, audit_key=OTHER_KEY)
    with pytest.raises(BackupProblem, match="made under other keys"):
        await restore_documents(tmp_path / "backups", other)
    with pytest.raises(BackupProblem, match="its seal is of another AUDIT_KEY"):
        await restore_documents(tmp_path / "backups", other, other_keys=True)


@pytest.mark.parametrize(
    ("replacement", "reason"), [("link", "is a link, and backups have none"), ("pipe", f"is damaged: acme/{NAME}")]
)
async def test_a_link_or_a_pipe_instead_of_an_installer_is_not_read(
    where: StoreAddresses, tmp_path: Path, replacement: str, reason: str
) -> None:
    installer = tmp_path / "backups" / "files" / "acme" / NAME
    installer.rename(tmp_path / "elsewhere")
    if replacement == "link":
        installer.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(installer)
    with pytest.raises(BackupProblem, match=reason):
        await restore_documents(tmp_path / "backups", where)
    assert files_below(tmp_path / "after") == set()


async def test_a_backup_does_not_write_through_a_link(where: StoreAddresses, tmp_path: Path) -> None:
    await restore_documents(tmp_path / "backups", where)
    shutil.rmtree(tmp_path / "backups" / "files" / "acme")
    (tmp_path / "outside").mkdir()
    (tmp_path / "backups" / "files" / "acme").symlink_to(tmp_path / "outside")
    with pytest.raises(BackupProblem, match="is a link, and backups have none"):
        await back_up(tmp_path / "backups", where)
    assert files_below(tmp_path / "outside") == set()


async def test_two_records_of_one_file_are_rejected(where: StoreAddresses, tmp_path: Path) -> None:
    second = {"_id": "second", "upload_id": "2" * 32, "file_id": "again"}
    change_uploads(tmp_path / "backups", lambda record: [record, {**record, **second}])
    with pytest.raises(BackupProblem, match="two records with the same tenant_id, server_filename"):
        await restore_documents(tmp_path / "backups", where, without_seal=True)
