"""Backup folders that others can write to: links are not followed, and a seal reveals every change."""

import os
from datetime import UTC, datetime
from errno import EACCES
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import bson
import pytest
from pydantic import SecretStr

from deploy.backup.folder import BackupFolder, check_records
from deploy.backup.installers import UPLOADS
from deploy.backup.records import BackupManifest, BackupProblem, Entry
from tests.support.factories import KEY
from tests.support.tables import each

NAME = f"{'1' * 32}.exe"
AUDIT_KEY, OTHER_KEY = SecretStr(KEY), SecretStr("another-key-that-is-long-enough-to-be-one")


@pytest.fixture
def folder(tmp_path: Path) -> BackupFolder:
    folder = BackupFolder(tmp_path / "backups")
    folder.path.mkdir()
    return folder


def make_backup(folder: BackupFolder, audit_key: SecretStr = AUDIT_KEY) -> str:
    """Make a backup without installers; returns its name."""
    (folder.begin() / UPLOADS).touch()
    return folder.finish(BackupManifest(made_at=datetime.now(UTC), keys={}, records=[], lacking=[]), audit_key)


def test_a_backup_is_sealed_under_the_audit_key(folder: BackupFolder) -> None:
    make_backup(folder)
    assert folder.load(None).is_sealed(AUDIT_KEY)
    assert not folder.load(None).is_sealed(OTHER_KEY)


def test_a_seal_of_the_old_key_is_valid_while_that_key_exists(folder: BackupFolder) -> None:
    make_backup(folder)
    both = SecretStr(f"{OTHER_KEY.get_secret_value()} {KEY}")
    assert folder.load(None).is_sealed(both)
    make_backup(folder, both)
    assert folder.load(None).is_sealed(OTHER_KEY)


def test_a_folder_of_another_user_names_the_command(folder: BackupFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError(EACCES, "Permission denied", "/backups/.lock")))
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    with pytest.raises(BackupProblem, match="sudo chown -R 10001:10001 FOLDER"), folder.locked():
        pass


@each("seal", ["", "0" * 64, "é" * 64, "x"])
def test_another_seal_is_not_valid(folder: BackupFolder, seal: str) -> None:
    (folder.path / make_backup(folder) / "manifest.seal").write_text(seal)
    assert not folder.load(None).is_sealed(AUDIT_KEY)


def test_a_changed_manifest_does_not_match_its_seal(folder: BackupFolder) -> None:
    manifest = folder.path / make_backup(folder) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    assert not folder.load(None).is_sealed(AUDIT_KEY)


def test_an_old_backup_under_a_newer_name_does_not_match_its_seal(folder: BackupFolder) -> None:
    (folder.path / make_backup(folder)).rename(folder.path / "2999-01-01T000000.000000Z")
    assert folder.load(None).name == "2999-01-01T000000.000000Z"
    assert not folder.load(None).is_sealed(AUDIT_KEY)


@each(
    ("tenant_id", "server_filename"),
    [
        ("../../pwn", NAME),
        ("/etc", NAME),
        ("..", NAME),
        ("", NAME),
        ("a\\b", NAME),
        ("acme", "../../../etc/cron.d/x"),
        ("acme", "/etc/cron.d/x"),
        ("acme", "x\0"),
        ("acme", "."),
        ("acme", ""),
    ],
)
def test_a_name_outside_of_the_backup_folder_is_refused(
    folder: BackupFolder, tenant_id: str, server_filename: str
) -> None:
    with pytest.raises(BackupProblem, match="a name that leads out of the backups"):
        folder.file(tenant_id, server_filename)


@pytest.mark.parametrize("linked_part", ["files", "files/acme", f"files/acme/{NAME}"])
def test_a_link_on_the_way_to_an_installer_is_refused(folder: BackupFolder, tmp_path: Path, linked_part: str) -> None:
    link = folder.path / linked_part
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path)
    with pytest.raises(BackupProblem, match="is a link, and backups have none"):
        folder.file("acme", NAME)


def test_deleting_old_backups_follows_no_link(folder: BackupFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "installers"
    elsewhere.mkdir()
    (elsewhere / NAME).touch()
    unused = folder.path / "files" / "acme" / NAME
    unused.parent.mkdir(parents=True)
    unused.touch()
    (folder.path / "files" / "other").symlink_to(elsewhere)
    make_backup(folder)
    folder.keep_newest(1)
    assert (elsewhere / NAME).exists()
    assert not unused.exists()


def test_a_link_instead_of_the_lock_changes_no_other_file(folder: BackupFolder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("text")
    (folder.path / ".lock").symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"), folder.locked():
        pass
    assert other.read_text() == "text"


def test_a_link_to_a_backup_is_no_backup(folder: BackupFolder, tmp_path: Path) -> None:
    name = make_backup(folder)
    moved = (folder.path / name).rename(tmp_path / name)
    (folder.path / name).symlink_to(moved)
    assert folder.names() == []


def test_records_that_are_not_regular_files_are_not_opened(folder: BackupFolder) -> None:
    os.mkfifo(folder.path / UPLOADS)
    with pytest.raises(BackupProblem, match="is not a regular file"):
        check_records(folder.path, [Entry(name=UPLOADS, size=0, sha256="0" * 64)])


@pytest.mark.parametrize("tenant_id", ["../../pwn", "", "UPPER", None, 1, ["acme"], {"$ne": 1}])
def test_a_record_with_an_invalid_tenant_id_is_refused(folder: BackupFolder, tenant_id: object) -> None:
    entry = write_records(folder.path, "catalog.packages.bson", {"_id": 1, "tenant_id": tenant_id})
    with pytest.raises(BackupProblem, match="an invalid tenant id"):
        check_records(folder.path, [entry])


@pytest.mark.parametrize("record", [{"tenant_id": "acme"}, {"tenant_id": "internal"}, {}])
def test_records_of_tenants_operators_and_without_tenant_are_accepted(
    folder: BackupFolder, record: dict[str, str]
) -> None:
    check_records(folder.path, [write_records(folder.path, "auth.audit_log.bson", {"_id": 1, **record})])


def test_a_record_changed_to_another_of_its_size_is_refused(folder: BackupFolder) -> None:
    name = "auth.users.bson"
    entry = write_records(folder.path, name, {"_id": 1, "tenant_id": "acme", "role": "viewer"})
    write_records(folder.path, name, {"_id": 1, "tenant_id": "acme", "role": "admins"})
    assert (folder.path / name).stat().st_size == entry.size
    with pytest.raises(BackupProblem, match="is damaged"):
        check_records(folder.path, [entry])


def write_records(folder: Path, name: str, *records: dict[str, object]) -> Entry:
    """Write a file of records; its entry in a manifest."""
    content = b"".join(bson.encode(record) for record in records)
    (folder / name).write_bytes(content)
    return Entry(name=name, size=len(content), sha256=sha256(content).hexdigest())


def test_a_pipe_instead_of_the_lock_does_not_block(folder: BackupFolder) -> None:
    os.mkfifo(folder.path / ".lock")
    with folder.locked():
        assert folder.names() == []
