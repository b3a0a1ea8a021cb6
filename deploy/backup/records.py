"""Records of the databases as files of BSON, as `mongodump` writes and `bsondump` shows them."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorClientSession
from pymongo import ASCENDING, ReplaceOne
from pymongo.errors import BulkWriteError, OperationFailure

from common.mongo import Document, long_timeout
from deploy.backup.manifest import BackupProblem, Entry

Client = AsyncIOMotorClient[Document]
Found = TypeVar("Found")

# A tenant is let in once it is among `auth`'s, so that comes last when records are put back.
DATABASES = ("upload", "clients", "catalog", "auth")
MARKERS = ("auth", "restorations")  # see `deploy.backup.marker`; of no backup
RAW = CodecOptions(document_class=RawBSONDocument)
MOST = (16 << 20) + (16 << 10)  # bytes of a document, by MongoDB's rules
BATCH = 500  # documents that are written at once
ATTEMPTS, PAUSE = 20, 0.5  # where collections or indexes are just being made; seconds
TOO_OLD, UNAVAILABLE = 239, 246  # MongoDB's codes


class DatabaseSnapshot:
    """The databases as they were when the first of them was asked."""

    def __init__(self, client: Client, session: AsyncIOMotorClientSession) -> None:
        self._client = client
        self._session = session

    async def each(
        self,
        database: str,
        collection: str,
        query: Mapping[str, Any],
        take: Callable[[RawBSONDocument], None],
        sort: str = "",
    ) -> None:
        """Give each document that the query finds, in the order of this field where that matters."""
        with long_timeout():
            found: Any = self._client[database].get_collection(collection, codec_options=RAW)
            order = [(sort, ASCENDING)] if sort else None
            async for document in found.find(query, sort=order, session=self._session):
                take(document)


async def snapshot_read(client: Client, read: Callable[[DatabaseSnapshot], Awaitable[Found]]) -> Found:
    """What `read` makes of the databases of one moment. Raises BackupProblem."""
    for attempt in range(ATTEMPTS):
        try:
            async with await client.start_session(snapshot=True) as session:
                return await read(DatabaseSnapshot(client, session))
        except OperationFailure as error:
            if error.code == TOO_OLD:
                raise BackupProblem(
                    "MongoDB forgot the moment while it was read; set minSnapshotHistoryWindowInSeconds, 300 by "
                    "default, to more seconds than reading the databases takes, and try again"
                ) from None
            if error.code != UNAVAILABLE or attempt == ATTEMPTS - 1:
                raise
        await asyncio.sleep(PAUSE)
    raise AssertionError


class RecordFile:
    """A file of documents that is being written."""

    def __init__(self, folder: Path, database: str, collection: str) -> None:
        self._name = f"{database}.{collection}.bson"
        self._file = (folder / self._name).open("wb")
        self._digest = hashlib.sha256()

    def take(self, document: RawBSONDocument) -> None:
        self._digest.update(document.raw)
        self._file.write(document.raw)

    def entry(self) -> Entry:
        """What was written, once the disk has it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return Entry(name=self._name, size=self._file.tell(), sha256=self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()


def is_plain_file(path: Path) -> bool:
    """Whether there is a file of bytes, and neither a link nor anything else."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def documents(path: Path) -> Iterator[RawBSONDocument]:
    """The documents of a file. Raises BackupProblem where it is none of documents."""
    if not is_plain_file(path):
        raise BackupProblem(f"{path}: is missing, or no plain file")
    with path.open("rb") as file:
        while start := file.read(4):
            size = int.from_bytes(start, "little")
            if not 5 <= size <= MOST:
                raise BackupProblem(f"{path.name}: is no file of documents")
            raw = start + file.read(size - 4)
            try:
                document = RawBSONDocument(raw)
                document.get("_id")
            except BSONError:
                raise BackupProblem(f"{path.name}: holds what is no document") from None
            yield document


async def restore_documents(client: Client, database: str, collection: str, rows: Iterator[Mapping[str, Any]]) -> None:
    """Write documents where none of their ids are; those that are there already are written again.

    Raises BackupProblem where something else is there.
    """
    batch: list[Mapping[str, Any]] = []
    for document in rows:
        batch.append(document)
        if len(batch) == BATCH:
            await _write(client, database, collection, batch)
            batch = []
    if batch:
        await _write(client, database, collection, batch)


async def _write(client: Client, database: str, collection: str, batch: Sequence[Mapping[str, Any]]) -> None:
    # With the tenant, so that no document can take the place of another tenant's.
    rows = [ReplaceOne({"_id": row["_id"], "tenant_id": row.get("tenant_id")}, row, upsert=True) for row in batch]
    with long_timeout():
        try:
            await client[database][collection].bulk_write(rows, ordered=False)  # type: ignore[arg-type]
        except BulkWriteError as error:
            text = str((error.details or {}).get("writeErrors", [{}])[0].get("errmsg", "")).partition(" dup key")[0][
                :200
            ]
            raise BackupProblem(f"{database}.{collection}: the database refuses a record: {text}") from None
