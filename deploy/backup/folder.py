"""A folder of backups.

    files/<tenant>/<file>       installers, shared by all backups
    <time>/manifest.json        what makes a backup one, written last
    <time>/<records>.bson
    .making/                    the one that is being made

It is its owner's alone: the records have the hashes of passwords and tokens.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from deploy.backup.copies import installers_of
from deploy.backup.manifest import BackupManifest, BackupProblem, Entry, parse
from upload_service.parts import BLOCK, sync_folder

MANIFEST = "manifest.json"


class BackupFolder:
    """The backups of one installation, by the time at which each was made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder where there is none, and keep others from writing to it. Raises BackupProblem."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupProblem(f"{self.path}: another backup is being made there") from None
            yield

    def file(self, tenant_id: str, server_filename: str) -> Path:
        return self.path / "files" / tenant_id / server_filename

    def begin(self) -> Path:
        """An empty folder for records."""
        making = self.path / ".making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        return making

    def finish(self, manifest: BackupManifest) -> str:
        """Let what was begun be a backup; its name."""
        making = self.path / ".making"
        with (making / MANIFEST).open("x", encoding="utf-8") as file:
            file.write(manifest.model_dump_json(indent=2))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(making)
        name = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S.%fZ}"
        making.rename(self.path / name)
        sync_folder(self.path)
        return name

    def made(self) -> list[str]:
        """The backups there are, the oldest first."""
        return sorted(found.parent.name for found in self.path.glob(f"[0-9]*/{MANIFEST}"))

    def read(self, name: str | None) -> tuple[str, BackupManifest]:
        """A backup, the newest where none is named. Raises BackupProblem."""
        made = self.made()
        if not made or (name and name not in made):
            there = f"there are {', '.join(made)}" if made else "there is none"
            raise BackupProblem(f"{self.path}: there is no backup {name or 'in it'}; {there}")
        chosen = name or made[-1]
        path = self.path / chosen / MANIFEST
        return chosen, parse(BackupManifest, path.read_bytes(), str(path))

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
        for path in (self.path / "files").glob("*/*"):
            if path not in named:
                path.unlink()
        return dropped


def check_records(folder: Path, entries: list[Entry]) -> None:
    """Raises BackupProblem for the first file that is not as it was written."""
    for entry in entries:
        path = folder / entry.name
        try:
            size, digest = path.stat().st_size, _digest(path)
        except FileNotFoundError:
            raise BackupProblem(f"{path}: is missing") from None
        if (size, digest) != (entry.size, entry.sha256):
            raise BackupProblem(f"{path}: is damaged")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
