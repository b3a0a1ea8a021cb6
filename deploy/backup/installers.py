"""Copies of installers. Each is compared with its record, and appears completely or not at all."""

import hashlib
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from common.errors import Problem, Unavailable
from common.mongo import Document
from common.tenants import is_tenant_id
from deploy.backup.records import BackupProblem, documents, is_plain_file
from deploy.operator.stores import Storage
from deploy.terminal import FileProgress
from upload_service.model import (
    Damage,
    InstallerMissing,
    Status,
    StorageKind,
    Upload,
    parse_file_id,
    parse_server_filename,
)
from upload_service.scanning.model import ScanState, scan_document
from upload_service.storage.filesystem import StorageBackends, read_blocks
from upload_service.storage.part_files import sync_folder
from upload_service.store import INSPECT, LEASE_FREE, SCAN, SCRUB, record_key, to_upload

STORED = (Status.COMPLETE, Status.LINKED)
UPLOADS = "upload.uploads.bson"
_UPLOAD_ID = re.compile("[0-9a-f]{32}")


WriteBlocks = Callable[[AsyncGenerator[bytes, None], Upload], Awaitable[None]]
"""Writes an installer from its blocks. Raises InstallerAltered, and as the blocks."""


class InstallerAltered(Exception):
    """The bytes are not those of the record."""


class CopyOutcome(StrEnum):
    COPIED = "copied"
    GONE = "gone"
    MISSING = "missing"
    ALTERED = "altered"
    UNREADABLE = "unreadable"


async def copy_installer(
    blocks: AsyncGenerator[bytes, None], upload: Upload, target: Path, progress: FileProgress
) -> None:
    """Write an installer; it gets its name when the disk has all of it. Raises InstallerAltered, and as `blocks`."""
    target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}")  # hidden: no installer has such a name
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as file:
            async with aclosing(verify_blocks(blocks, upload)) as verified:
                async for block in verified:
                    file.write(block)
                    progress.advance(len(block))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.replace(target)
    sync_folder(target.parent)


async def store_copy(source: Path, upload: Upload, storage: Storage, progress: FileProgress) -> CopyOutcome:
    """Copy an installer of a backup to the storage that the settings choose, unless it is there. Raises Unavailable."""
    backend = storage.backends.get(storage.chosen)
    if await backend.size(upload) == upload.size:
        progress.advance(upload.size)
        return CopyOutcome.COPIED
    if not is_plain_file(source):
        return CopyOutcome.MISSING
    try:
        if storage.chosen is StorageKind.FOLDER:
            await copy_installer(read_blocks(source, 0, upload.size), upload, storage.path(upload), progress)
        elif await is_intact(source, upload):
            await backend.put(upload, source)
            progress.advance(upload.size)
        else:
            return CopyOutcome.ALTERED
    except InstallerMissing:
        return CopyOutcome.MISSING
    except InstallerAltered:
        return CopyOutcome.ALTERED
    return CopyOutcome.COPIED


async def verify_blocks(blocks: AsyncGenerator[bytes, None], upload: Upload) -> AsyncGenerator[bytes, None]:
    """Yield the blocks. Raises InstallerAltered after the last if they are not the installer's."""
    digest, size = hashlib.sha256(), 0
    async with aclosing(blocks):
        async for block in blocks:
            digest.update(block)
            size += len(block)
            yield block
    if size != upload.size or digest.hexdigest() != upload.sha256:
        raise InstallerAltered


async def is_intact(path: Path, upload: Upload) -> bool:
    """Whether a file has the installer's bytes. Reads all of it."""
    try:
        async for _ in verify_blocks(read_blocks(path, 0, upload.size), upload):
            pass
    except (InstallerAltered, InstallerMissing):
        return False
    return has_size(path, upload.size)


def has_size(path: Path, size: int) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_size == size
    return False


@dataclass(frozen=True)
class InstallerSource:
    """The installers of a running installation. `find` reads a record again; None if it was deleted."""

    find: Callable[[Upload], Awaitable[Upload | None]]
    backends: StorageBackends

    async def copy(self, upload: Upload, write: WriteBlocks, progress: FileProgress) -> CopyOutcome:
        """Copy an installer, also if it moves to another storage meanwhile; `write` begins again then.

        Raises Unavailable or OSError, unless the scrub has found out that only this installer cannot be read.
        """
        done = progress.done
        while True:
            try:
                await write(self.backends.of(upload).read(upload, 0, upload.size), upload)
            except (InstallerMissing, InstallerAltered) as problem:
                progress.update(done)
                current = await self.find(upload)
                if current is None or current.status not in STORED:
                    return CopyOutcome.GONE
                if current.storage == upload.storage:
                    is_altered = isinstance(problem, InstallerAltered)
                    return CopyOutcome.ALTERED if is_altered else CopyOutcome.MISSING
                upload = current
            except (OSError, Unavailable):
                progress.update(done)
                current = await self.find(upload)
                if current is None or current.damage is not Damage.UNREADABLE:
                    raise
                return CopyOutcome.UNREADABLE
            else:
                return CopyOutcome.COPIED


def installers_of(records: Path) -> Iterator[Upload]:
    """The installers in a folder of records. Raises BackupProblem as `parse_upload` does."""
    for document in documents(records / UPLOADS):
        upload = parse_upload(dict(document))
        if upload.status in STORED:
            yield upload


def parse_upload(document: Document) -> Upload:
    """The upload of a record. Raises BackupProblem for ids and names that upload_service does not make."""
    try:
        upload = to_upload(document)
        parse_file_id([upload.original_file_id or upload.file_id])
        has_name = parse_server_filename(upload.server_filename) is not None
        is_sound = (
            is_tenant_id(upload.tenant_id)
            and _UPLOAD_ID.fullmatch(upload.upload_id) is not None
            and isinstance(upload.generation, int)
            and (has_name or (not upload.server_filename and upload.status not in STORED))
        )
    except (AttributeError, KeyError, ValueError, TypeError, Problem):
        is_sound = False
    if not is_sound:
        raise BackupProblem(f"{UPLOADS}: a record has an invalid id or file name")
    return upload


def installer_document(upload: Upload) -> Document:
    """The record of an installer in the folder: complete, announced, linked, and verified now."""
    now = datetime.now(UTC)
    return {
        **record_key(upload),
        "total": upload.size,
        "offset": upload.size,
        "fence": upload.fence,
        "lease_until": LEASE_FREE,
        "status": Status.LINKED,
        "tainted": False,
        "part": 0,
        "home": StorageKind.FOLDER,
        "damage": Damage.NONE,
        "server_filename": upload.server_filename,
        "size": upload.size,
        "sha256": upload.sha256,
        "version_uid": upload.version_uid,
        "request_id": upload.request_id,
        **({"scan": scan_document(ScanState.INFECTED, upload.sha256, now)} if upload.is_infected else {}),
        # Files are inspected and scanned again; only the verdict `infected` is kept.
        "work": {kind: {"due": now, "since": now} for kind in (INSPECT, SCAN, SCRUB)},
        "withheld": upload.is_withheld,
        "updated_at": now,
    }
