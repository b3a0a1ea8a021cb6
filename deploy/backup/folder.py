"""A folder of backups.

    files/<tenant>/<file>       installers, shared by all backups
    <time>/manifest.json        what makes a backup one, written last
    <time>/manifest.seal        an HMAC of the manifest, see `deploy.backup.seal`
    <time>/<records>.bson
    .making/                    the one that is being made

It is its owner's alone: the records have the hashes of passwords and tokens. Yet it may lie on a machine with less
protection than the server, so no link in it is followed, and no name in it is trusted.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from auth_service.audit.service import OPERATORS
from common.tenants import is_tenant_id
from deploy.backup.copies import installers_of
from deploy.backup.manifest import BackupManifest, BackupProblem, Entry, parse
from deploy.backup.records import documents, is_plain_file
from deploy.backup.seal import make_seal, verify_seal
from upload_service.content_range import plain_name
from upload_service.uploads.part_files import BLOCK, sync_folder

MANIFEST, SEAL = "manifest.json", "manifest.seal"


@dataclass(frozen=True)
class StoredBackup:
    """A backup as its folder has it. `content` is the file of the manifest, `seal` is "" where there is none."""

    name: str
    manifest: BackupManifest
    content: bytes
    seal: str

    def is_sealed(self, audit_key: SecretStr) -> bool:
        """Whether the seal was made of this manifest with one of these keys."""
        return verify_seal(audit_key.get_secret_value(), self.name, self.content, self.seal)


class BackupFolder:
    """The backups of one installation, by the time at which each was made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder where there is none, and keep others from writing to it. Raises BackupProblem."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(lock, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupProblem(f"{self.path}: another backup is being made there") from None
            yield

    def file(self, tenant_id: str, server_filename: str) -> Path:
        """The place of an installer. Raises BackupProblem for names that lead elsewhere, and for a link on the way."""
        try:
            path = self.path / "files" / plain_name(tenant_id) / plain_name(server_filename)
        except ValueError:
            raise BackupProblem(f"{self.path}: a record has a name that leads out of the backups") from None
        for place in (path.parents[1], path.parent, path):
            if place.is_symlink():
                raise BackupProblem(f"{place}: is a link, and backups have none; remove it and find out who made it")
        return path

    def begin(self) -> Path:
        """An empty folder for records."""
        making = self.path / ".making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        return making

    def finish(self, manifest: BackupManifest, audit_key: SecretStr) -> str:
        """Let what was begun be a backup, sealed under the first of these keys; its name."""
        making = self.path / ".making"
        name = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S.%fZ}"
        content = manifest.model_dump_json(indent=2).encode()
        seal = make_seal(audit_key.get_secret_value(), name, content)
        for file_name, text in ((SEAL, seal.encode()), (MANIFEST, content)):
            with (making / file_name).open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        sync_folder(making)
        making.rename(self.path / name)
        sync_folder(self.path)
        return name

    def made(self) -> list[str]:
        """The backups there are, the oldest first; links are none."""
        return sorted(
            found.parent.name
            for found in self.path.glob(f"[0-9]*/{MANIFEST}")
            if is_plain_file(found) and not found.parent.is_symlink()
        )

    def read(self, name: str | None) -> StoredBackup:
        """A backup, the newest where none is named; its seal is not verified. Raises BackupProblem."""
        made = self.made()
        if not made or (name and name not in made):
            there = f"there are {', '.join(made)}" if made else "there is none"
            raise BackupProblem(f"{self.path}: there is no backup {name or 'in it'}; {there}")
        chosen = name or made[-1]
        path, seal = self.path / chosen / MANIFEST, self.path / chosen / SEAL
        content = path.read_bytes()
        text = seal.read_text(encoding="ascii", errors="replace") if is_plain_file(seal) else ""
        return StoredBackup(chosen, parse(BackupManifest, content, str(path)), content, text)

    def records(self, name: str) -> Path:
        return self.path / name

    def keep(self, count: int) -> list[str]:
        """Drop all but the newest so many, and the files that no other names; what was dropped."""
        dropped = self.made()[:-count]
        for name in dropped:
            (self.path / name / MANIFEST).unlink()  # It is none any more, however far the rest comes.
            shutil.rmtree(self.path / name)
        named = {
            self.file(upload.tenant_id, upload.server_filename)
            for name in self.made()
            for upload in installers_of(self.records(name))
        }
        # A name and a folder's descriptor: a link in the place of the folder is not followed.
        files = self.path / "files"
        if files.exists():  # The first installer makes it.
            for folder, _, names, descriptor in os.fwalk(files):
                for name in names:
                    if Path(folder, name) not in named:
                        os.unlink(name, dir_fd=descriptor)
        return dropped


def check_records(folder: Path, entries: list[Entry]) -> None:
    """Raises BackupProblem for the first file that is not as it was written, or has a record of no possible tenant."""
    for entry in entries:
        path = folder / entry.name
        if not is_plain_file(path):
            raise BackupProblem(f"{path}: is missing, or no plain file")
        if (path.stat().st_size, _digest(path)) != (entry.size, entry.sha256):
            raise BackupProblem(f"{path}: is damaged")
        for document in documents(path):
            tenant_id = document.get("tenant_id", OPERATORS)
            if tenant_id != OPERATORS and not (isinstance(tenant_id, str) and is_tenant_id(tenant_id)):
                raise BackupProblem(f"{path}: has a record of a tenant whose id no tenant can have")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
