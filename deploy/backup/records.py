"""Records of the databases as BSON files, in the format of `mongodump` and `bsondump`."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorClientSession
from pymongo import ASCENDING, ReplaceOne
from pymongo.errors import BulkWriteError, OperationFailure

from common.mongo import Document, long_timeout
from common.mongo.schema import COLLECTION
from deploy.backup.manifest import BackupProblem, Entry

Client = AsyncIOMotorClient[Document]
Result = TypeVar("Result")

# A tenant can be used once `auth` has it, so a restore writes `auth` last.
DATABASES = ("upload", "clients", "catalog", "auth")
MARKERS = ("auth", "restorations")  # see `RestoreMarker`; not part of a backup
RAW = CodecOptions(document_class=RawBSONDocument)
DECODED: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)
MAX_DOCUMENT = (16 << 20) + (16 << 10)  # bytes, MongoDB's limit
BATCH = 500  # documents of one write
ATTEMPTS, PAUSE = 20, 0.5  # while collections or indexes are created; seconds
TOO_OLD, UNAVAILABLE = 239, 246  # MongoDB's codes


@dataclass(frozen=True)
class DatabaseSnapshot:
    """The databases at the time of the first read."""

    client: Client
    session: AsyncIOMotorClientSession

    async def export(
        self, database: str, collection: str, folder: Path, query: Mapping[str, Any], sort: str = ""
    ) -> Entry:
        """Write the documents of a query to a file, in the order of the field `sort` if given; its manifest entry."""
        name, digest = f"{database}.{collection}.bson", hashlib.sha256()
        with long_timeout(), (folder / name).open("wb") as file:
            records: Any = self.client[database].get_collection(collection, codec_options=RAW)
            async for document in records.find(query, sort=[(sort, ASCENDING)] if sort else None, session=self.session):
                digest.update(document.raw)
                file.write(document.raw)
            file.flush()
            os.fsync(file.fileno())
            return Entry(name=name, size=file.tell(), sha256=digest.hexdigest())


async def snapshot_read(client: Client, read: Callable[[DatabaseSnapshot], Awaitable[Result]]) -> Result:
    """The result of `read` on a snapshot of the databases. Raises BackupProblem."""
    for attempt in range(ATTEMPTS):
        try:
            async with await client.start_session(snapshot=True) as session:
                return await read(DatabaseSnapshot(client, session))
        except OperationFailure as error:
            if error.code == TOO_OLD:
                raise BackupProblem(
                    "MongoDB dropped the snapshot while it was read; set minSnapshotHistoryWindowInSeconds (300 by "
                    "default) to more seconds than the databases take to read, and try again"
                ) from None
            if error.code != UNAVAILABLE or attempt == ATTEMPTS - 1:
                raise
        await asyncio.sleep(PAUSE)
    raise AssertionError


async def collections(client: Client) -> list[tuple[str, str]]:
    """The databases and names of all collections that a backup has."""
    return [
        (database, name)
        for database in DATABASES
        for name in sorted(await client[database].list_collection_names())
        if (database, name) != MARKERS and name != COLLECTION
    ]


def is_plain_file(path: Path) -> bool:
    """Whether a regular file exists at the path, and not a link."""
    return path.is_file() and not path.is_symlink()


def open_plain_file(path: Path) -> BufferedReader:
    if not is_plain_file(path):
        raise BackupProblem(f"{path}: is missing, or is not a regular file")
    return path.open("rb")


def documents(path: Path) -> Iterator[RawBSONDocument]:
    """The documents of a file. Raises BackupProblem if the file is not valid."""
    with open_plain_file(path) as file:
        while start := file.read(4):
            size = int.from_bytes(start, "little")
            if not 5 <= size <= MAX_DOCUMENT:
                raise BackupProblem(f"{path.name}: is not a file of documents")
            raw = start + file.read(size - 4)
            try:
                document = RawBSONDocument(raw)
                document.get("_id")
            except BSONError:
                raise BackupProblem(f"{path.name}: contains an invalid document") from None
            yield document


async def restore_documents(client: Client, database: str, collection: str, rows: Iterator[Mapping[str, Any]]) -> None:
    """Write documents; one of the same id and tenant is replaced. Raises BackupProblem if the database rejects one."""
    while batch := list(islice(rows, BATCH)):
        # The filter has the tenant, so no document can replace one of another tenant.
        writes = [ReplaceOne({"_id": row["_id"], "tenant_id": row.get("tenant_id")}, row, upsert=True) for row in batch]
        with long_timeout():
            try:
                await client[database][collection].bulk_write(writes, ordered=False)  # type: ignore[arg-type]
            except BulkWriteError as error:
                message = str((error.details or {}).get("writeErrors", [{}])[0].get("errmsg", ""))
                reason = message.partition(" dup key")[0][:200]
                raise BackupProblem(f"{database}.{collection}: the database rejects a record: {reason}") from None
