"""A folder of backups.

    files/<tenant>/<file>       installers, shared by all backups
    <time>/manifest.json        written last: it completes the backup
    <time>/manifest.seal        an HMAC of the manifest, see `deploy.backup.records`
    <time>/<records>.bson
    .making/                    the unfinished backup

Only its owner may read it: the records have the hashes of passwords and tokens. It may lie on a machine with less
protection than the server, so no link in it is followed and no name in it is trusted.
"""

import fcntl
import hashlib
import hmac
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from auth_service.audit.store import OPERATORS
from common.tenants import is_tenant_id
from deploy.backup.installers import installers_of
from deploy.backup.records import (
    AUDIT,
    BackupManifest,
    BackupProblem,
    Entry,
    documents,
    is_plain_file,
    make_seals,
    open_plain_file,
)
from deploy.operator.stores import StoreAddresses, require_known_schemas
from upload_service.model import plain_name
from upload_service.storage.part_files import sync_folder

MANIFEST, SEAL = "manifest.json", "manifest.seal"


@dataclass(frozen=True)
class StoredBackup:
    """A backup in the folder `path`. `content` is the text of the manifest, `seal` is "" if the backup has none."""

    path: Path
    manifest: BackupManifest
    content: bytes
    seal: str

    @property
    def name(self) -> str:
        return self.path.name

    def is_sealed(self, audit_key: SecretStr) -> bool:
        """Whether the seal was made of this manifest with one of these keys."""
        expected = make_seals(audit_key, self.name, self.content)
        return any(hmac.compare_digest(seal.encode(), self.seal.encode()) for seal in expected)


class BackupFolder:
    """The backups of one installation. The name of a backup is the time when it was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unfinished = path / ".making"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if necessary, and lock it. Raises BackupProblem if another process or user has it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except PermissionError:
            user = os.geteuid()
            raise BackupProblem(
                f"{self.path}: user {user} may not write there; on the host, run "
                f"`sudo chown -R {user}:{user} FOLDER`, with deploy/backups as FOLDER for compose"
            ) from None
        with os.fdopen(lock, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupProblem(f"{self.path}: another backup is being made there") from None
            yield

    def file(self, tenant_id: str, server_filename: str) -> Path:
        """The path of an installer. Raises BackupProblem for names that lead elsewhere, and for a link on the way."""
        try:
            path = self.path / "files" / plain_name(tenant_id) / plain_name(server_filename)
        except ValueError:
            raise BackupProblem(f"{self.path}: a record has a name that leads out of the backups") from None
        for part in (path.parents[1], path.parent, path):
            if part.is_symlink():
                raise BackupProblem(f"{part}: is a link, and backups have none; remove it and find out who made it")
        return path

    def begin(self) -> Path:
        """An empty folder for the records of a new backup."""
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._unfinished.mkdir(mode=0o700)
        return self._unfinished

    def finish(self, manifest: BackupManifest, audit_key: SecretStr) -> str:
        """Complete the new backup, sealed under the first of these keys; its name."""
        name = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S.%fZ}"
        content = manifest.model_dump_json(indent=2).encode()
        seal = make_seals(audit_key, name, content)[0]
        for file_name, text in ((SEAL, seal.encode()), (MANIFEST, content)):
            with (self._unfinished / file_name).open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(self._unfinished)
        self._unfinished.rename(self.path / name)
        sync_folder(self.path)
        return name

    def names(self) -> list[str]:
        """The names of the backups, the oldest first; links are ignored."""
        return sorted(
            manifest.parent.name
            for manifest in self.path.glob(f"[0-9]*/{MANIFEST}")
            if is_plain_file(manifest) and not manifest.parent.is_symlink()
        )

    def load(self, name: str | None) -> StoredBackup:
        """A backup, or the newest one. The seal is not verified. Raises BackupProblem."""
        names = self.names()
        if not names or (name and name not in names):
            available = f"there are {', '.join(names)}" if names else "there is none"
            raise BackupProblem(f"{self.path}: there is no backup {name or 'in it'}; {available}")
        path = self.path / (name or names[-1])
        content, seal = (path / MANIFEST).read_bytes(), path / SEAL
        text = seal.read_text(encoding="ascii", errors="replace") if is_plain_file(seal) else ""
        return StoredBackup(path, BackupManifest.parse(content, str(path / MANIFEST)), content, text)

    def verify(self, backup: StoredBackup, where: StoreAddresses, *, without_seal: bool) -> None:
        """Raise BackupProblem for a backup that was changed, and SchemaIsNewer for one of a later version."""
        require_known_schemas(backup.manifest.schemas, "the backup's ")
        if not without_seal:
            self.require_sealed(backup, where)
        check_records(backup.path, backup.manifest.records)

    def require_sealed(self, backup: StoredBackup, where: StoreAddresses) -> None:
        """Raise BackupProblem if a backup has no seal, or one that does not match."""
        if backup.is_sealed(where.require_audit_key()):
            return
        path = backup.path
        if not backup.seal:
            raise BackupProblem(
                f"{path}: has no seal, because somebody removed it. Do not restore it. Choose another backup "
                f"with --at, and find out who can write to {self.path}"
            )
        if AUDIT in backup.manifest.missing_keys(where):
            raise BackupProblem(
                f"{path}: says that its seal is of another AUDIT_KEY. If you never changed that key, somebody changed "
                "the backup. Else add the old AUDIT_KEY after the one here, separated by a space, and run this again. "
                f"If it is lost, and nobody but you could write to {self.path}, add --without-seal"
            )
        raise BackupProblem(
            f"{path}: was changed or renamed after it was made, because its seal does not match. Do not restore it. "
            f"Choose another backup with --at, and find out who can write to {self.path}"
        )

    def keep_newest(self, count: int) -> list[str]:
        """Delete all backups but the newest `count`, and unused installers; the names of the deleted backups."""
        deleted = self.names()[:-count]
        for name in deleted:
            (self.path / name / MANIFEST).unlink()  # Without a manifest it is no backup, however the rest ends.
            shutil.rmtree(self.path / name)
        used = {
            self.file(upload.tenant_id, upload.server_filename)
            for name in self.names()
            for upload in installers_of(self.path / name)
        }
        # Files are deleted by name and their folder's descriptor, so a link instead of a folder is not followed.
        files = self.path / "files"
        if files.exists():  # The first installer creates it.
            for folder, _, names, descriptor in os.fwalk(files):
                for name in names:
                    if Path(folder, name) not in used:
                        os.unlink(name, dir_fd=descriptor)
        return deleted


def check_records(folder: Path, entries: list[Entry]) -> None:
    """Raise BackupProblem for the first file that differs from its entry, or has a record with an invalid tenant id."""
    for entry in entries:
        path = folder / entry.name
        with open_plain_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if (path.stat().st_size, digest) != (entry.size, entry.sha256):
            raise BackupProblem(f"{path}: is damaged")
        for document in documents(path):
            tenant_id = document.get("tenant_id", OPERATORS)
            if tenant_id != OPERATORS and not (isinstance(tenant_id, str) and is_tenant_id(tenant_id)):
                raise BackupProblem(f"{path}: has a record with an invalid tenant id")
