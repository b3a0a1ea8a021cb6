"""Installers on their way from one place to another: held against their records, and there whole or not at all."""

import hashlib
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from common.errors import Problem
from common.mongo import Document
from common.tenants import is_tenant_id
from deploy.backup.manifest import BackupProblem
from deploy.backup.records import documents
from upload_service.content_range import parse_file_id, parse_server_filename
from upload_service.model import InstallerMissing, Status, Upload
from upload_service.storage.filesystem import StorageBackends, read_blocks
from upload_service.store import to_upload
from upload_service.uploads.part_files import sync_folder

KEPT = (Status.COMPLETE, Status.LINKED)
UPLOADS = "upload.uploads.bson"
_UPLOAD_ID = re.compile("[0-9a-f]{32}")

Advance = Callable[[int], None]


class Altered(Exception):
    """The bytes are not those of the record."""


class Outcome(StrEnum):
    """What became of an installer that was to be copied."""

    COPIED = "copied"
    GONE = "gone"
    MISSING = "missing"
    ALTERED = "altered"


async def copy(blocks: AsyncGenerator[bytes, None], upload: Upload, target: Path, advance: Advance) -> None:
    """Write an installer under its name once all of it is on the disk. Raises Altered, and what `blocks` raises."""
    target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    begun = target.with_name(f".{target.name}")  # hidden: no installer has such a name
    begun.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as file:
            async with aclosing(checked(blocks, upload)) as good:
                async for block in good:
                    file.write(block)
                    advance(len(block))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        begun.unlink(missing_ok=True)
        raise
    begun.replace(target)
    sync_folder(target.parent)


async def checked(blocks: AsyncGenerator[bytes, None], upload: Upload) -> AsyncGenerator[bytes, None]:
    """The same blocks. Raises Altered after the last where they are not the installer's."""
    digest, size = hashlib.sha256(), 0
    async with aclosing(blocks):
        async for block in blocks:
            digest.update(block)
            size += len(block)
            yield block
    if size != upload.size or digest.hexdigest() != upload.sha256:
        raise Altered


async def is_whole(path: Path, upload: Upload) -> bool:
    """Whether a file is the installer's, all of it read."""
    try:
        async for _ in checked(read_blocks(path, 0, upload.size), upload):
            pass
    except (Altered, InstallerMissing):
        return False
    return has_size(path, upload.size)


def has_size(path: Path, size: int) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_size == size
    return False


class Records(Protocol):
    """The records of installers."""

    async def find(self, upload: Upload) -> Upload | None:
        """As it is now, None where it is gone."""


class Source:
    """The installers of a running installation, wherever each of them is."""

    def __init__(self, records: Records, homes: StorageBackends) -> None:
        self._records = records
        self._homes = homes

    async def copy(self, upload: Upload, target: Path, advance: Advance) -> Outcome:
        """Copy an installer, also one that moves to another home meanwhile. Raises Unavailable."""
        copied = 0

        def count(size: int) -> None:
            nonlocal copied
            copied += size
            advance(size)

        while True:
            try:
                await copy(self._homes.of(upload).read(upload, 0, upload.size), upload, target, count)
            except (InstallerMissing, Altered) as problem:
                advance(-copied)
                copied = 0
                now = await self._records.find(upload)
                if now is None or now.status not in KEPT:
                    return Outcome.GONE
                if now.storage == upload.storage:
                    return Outcome.ALTERED if isinstance(problem, Altered) else Outcome.MISSING
                upload = now
            else:
                return Outcome.COPIED


def installers_of(records: Path) -> Iterator[Upload]:
    """The installers that a folder of records names. Raises BackupProblem where `parse_upload` does."""
    for document in documents(records / UPLOADS):
        upload = parse_upload(dict(document))
        if upload.status in KEPT:
            yield upload


def parse_upload(document: Document) -> Upload:
    """The upload of a record. Raises BackupProblem where its ids and names are not as upload_service makes them."""
    try:
        upload = to_upload(document)
        parse_file_id([upload.original_file_id or upload.file_id])
        has_name = parse_server_filename(upload.server_filename) is not None
        is_sound = (
            is_tenant_id(upload.tenant_id)
            and _UPLOAD_ID.fullmatch(upload.upload_id) is not None
            and isinstance(upload.generation, int)
            and (has_name or (not upload.server_filename and upload.status not in KEPT))
        )
    except (KeyError, ValueError, TypeError, Problem):
        is_sound = False
    if not is_sound:
        raise BackupProblem(f"{UPLOADS}: has a record with an id or a file name that no upload has")
    return upload
