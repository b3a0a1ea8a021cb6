"""Which storage belongs to which database: a random id that both have.

Whoever starts the service with the installers of one installation and the database of another, or with an empty disk in
the place of a full one, must not have files removed that no record knows, nor records marked whose files are not there.
"""

import asyncio
import os
from collections.abc import Collection, Set
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from common.mongo import MongoError
from common.telemetry import log
from upload_service.model import InstallerMissing, StorageKind, Upload
from upload_service.storage.filesystem import StorageBackends

FOLDER, NAME = ".storage", "id"  # no tenant and no installer has such a name
LENGTH = 32  # bytes of an id
SAMPLE = 1000  # files of a storage without an id that are looked for in the records


class StorageIsNotOurs(Exception):
    """A home has another id than the database, or none though it should."""


class OwnershipStore(Protocol):
    """The database's id, and its records."""

    async def storage_id(self) -> str | None: ...

    async def create_storage_id(self) -> str:
        """The id, made where there is none."""

    async def known_names(self, tenant_id: str, server_filenames: Collection[str]) -> Set[str]:
        """Those of a tenant's files that there are records of."""

    async def has_files_at(self, home: StorageKind) -> bool:
        """Whether any record has its file there."""


class StorageOwnership:
    """Tells whether a home belongs to the database, and lets it where it belongs to none yet.

    The id is kept in a home as an installer is, so every kind of home has it in the same way.
    """

    _mark = Upload(tenant_id=FOLDER, file_id=NAME, upload_id=NAME, total=0, server_filename=NAME)

    def __init__(self, store: OwnershipStore, homes: StorageBackends, folder: Path) -> None:
        """`folder` is the one that all replicas share."""
        self._store = store
        self._homes = homes
        self._folder = folder

    async def is_ours(self, home: StorageKind) -> bool:
        """Whether a home belongs to the database. Raises Unavailable."""
        here, ours = await self._ids(home)
        if here is None or here != ours:
            log.error("storage_is_not_ours", home=home, id_in_the_storage=here, id_in_the_database=ours)
            return False
        return True

    async def check(self, home: StorageKind) -> None:
        """Raises StorageIsNotOurs, and Unavailable; whether disk and database are there others ask."""
        with suppress(MongoError, OSError):
            here, ours = await self._ids(home)
            if here is None or here != ours:
                raise StorageIsNotOurs(home)

    async def _ids(self, home: StorageKind) -> tuple[str | None, str | None]:
        """The id of a home and the database's."""
        here, ours = await self._read(home), await self._store.storage_id()
        if here is None and await self._may_be_ours(home):
            ours = await self._store.create_storage_id()
            await self._write(home, ours)
            here = await self._read(home)
        return here, ours

    async def _read(self, home: StorageKind) -> str | None:
        try:
            blocks = [block async for block in self._homes.get(home).read(self._mark, 0, LENGTH)]
        except InstallerMissing:
            return None
        return b"".join(blocks).decode(errors="replace")

    async def _may_be_ours(self, home: StorageKind) -> bool:
        """Whether a home without an id has a file that we know, or neither has one nor should."""
        some: dict[str, list[str]] = {}
        count = 0
        async for kept in self._homes.get(home).list_files():
            some.setdefault(kept.tenant_id, []).append(kept.server_filename)
            count += 1
            if count == SAMPLE:
                break
        if not some:
            return not await self._store.has_files_at(home)
        for tenant_id, names in some.items():
            if await self._store.known_names(tenant_id, names):
                return True
        return False

    async def _write(self, home: StorageKind, storage_id: str) -> None:
        source = self._folder / FOLDER / f"{uuid4().hex}.new"
        await asyncio.to_thread(_write_file, source, storage_id)
        try:
            await self._homes.get(home).put(self._mark, source)
        finally:
            await asyncio.to_thread(source.unlink, missing_ok=True)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o750, exist_ok=True)
    with path.open("x", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
