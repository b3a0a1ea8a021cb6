"""The common format of backups and of tenant archives: a manifest, its seal, and records as BSON files.

The files of records have the format of `mongodump` and `bsondump`.

A seal is an HMAC-SHA256 of the manifest. The manifest has the digest of every file of records, and the records have the
digest of every installer. A valid seal shows that nobody changed them; it keeps nothing secret.

The key of a backup's seal is AUDIT_KEY, which no backup contains. An archive moves to an installation with other keys.
Its seal has a key of its own, which scrypt derives from the operator's passphrase.
"""

import asyncio
import hashlib
import hmac
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TextIO, TypeVar

from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorClientSession
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pymongo import ASCENDING, ReplaceOne
from pymongo.errors import BulkWriteError, OperationFailure

from common.mongo import Document, long_timeout
from common.mongo.schema import COLLECTION
from deploy.operator.stores import StoreAddresses

# AUDIT_KEY seals the audit log. Client tokens are stored as HMACs under CLIENT_TOKEN_KEY.
AUDIT, CLIENT_TOKEN = "AUDIT_KEY", "CLIENT_TOKEN_KEY"
FINGERPRINT = b"the fingerprint of a key of pkgrepo"
SEAL = b"the manifest of a backup of pkgrepo"  # No other HMAC under this key begins with these words.
SCRYPT_COST = 2**17  # 128 MiB and half a second for each guess, as OWASP recommends
SALT_SIZE = 16  # bytes
PASSPHRASE_MINIMUM = 20  # characters
RECORDS = re.compile(r"([a-z]{1,32})\.([a-z_]{1,64})\.bson")
MAX_ENTRIES = 2_000_000
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


class BackupProblem(Exception):
    """A backup or an archive cannot be made or read; the text is the reason in one line."""


class StrictModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Entry(StrictModel):
    """A file. `size` is bytes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    size: Annotated[int, Field(ge=0, le=2**40)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(StrictModel):
    """`keys` has the fingerprints of the keys that the records were made with, by their settings.

    `records` are collections, each a file `<database>.<collection>.bson` of consecutive documents. `schemas` has the
    schema version of each database.
    """

    format: Literal[1] = 1
    made_at: Annotated[AwareDatetime, Field(strict=False)]
    keys: dict[str, list[str]]
    schemas: dict[str, Annotated[int, Field(ge=0)]] = {}
    records: Annotated[list[Entry], Field(max_length=1000)]

    @classmethod
    def parse(cls, text: bytes, path: str) -> Self:
        """The manifest of a text. Raises BackupProblem."""
        try:
            manifest = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise BackupProblem(f"{path}: is not a manifest of this version ({field}: {first['msg']})") from None
        names = [entry.name for entry in manifest.records]
        if len(set(names)) < len(names) or not all(RECORDS.fullmatch(name) for name in names):
            raise BackupProblem(f"{path}: names a file of records twice, or an invalid one")
        return manifest

    def missing_keys(self, where: StoreAddresses) -> list[str]:
        """The settings that lack a key of the manifest; settings that only one side knows are not compared."""
        keys = key_fingerprints(where)
        return [name for name in sorted(self.keys.keys() & keys.keys()) if not set(self.keys[name]) <= set(keys[name])]

    def uncompared_keys(self, where: StoreAddresses) -> list[str]:
        """The settings that only one side knows."""
        return sorted(self.keys.keys() ^ key_fingerprints(where).keys())


class BackupManifest(Manifest):
    """Of an installation; `lacking` are installers, `<tenant>/<file>`, that were missing or damaged at that time."""

    lacking: Annotated[list[str], Field(max_length=MAX_ENTRIES)]


class ArchiveManifest(Manifest):
    """Of one tenant. `files` are its installers in the order of their records; `audit_head` is the head of its log."""

    tenant_id: str
    audit_head: str
    files: Annotated[list[Entry], Field(max_length=MAX_ENTRIES)]


def key_fingerprints(where: StoreAddresses) -> dict[str, list[str]]:
    """The fingerprints of each setting's keys, without settings that are not given. They do not reveal the keys."""
    keys = {
        AUDIT: where.audit_key.get_secret_value().split() if where.audit_key else [],
        CLIENT_TOKEN: where.client_token_key.accepted if where.client_token_key else [],
    }
    return {name: [_hmac(key, FINGERPRINT)[:32] for key in values] for name, values in keys.items() if values}


def make_seals(audit_key: SecretStr, name: str, manifest: bytes) -> list[str]:
    """The seals of the backup `name` under each of these keys, in hexadecimal; the first is for a new backup."""
    keys = audit_key.get_secret_value().split()
    return [_hmac(key, b"\n".join([SEAL, name.encode(), manifest])) for key in keys]


@dataclass(frozen=True)
class Passphrase:
    """Seals archives. The operator gives the same one to the export and to the import."""

    text: SecretStr

    @classmethod
    def read(cls, file: TextIO) -> Self:
        """The first line of a file. Raises BackupProblem."""
        try:
            text = file.readline().strip()
        except UnicodeDecodeError:
            text = ""
        if len(text) < PASSPHRASE_MINIMUM:
            raise BackupProblem(
                f"{file.name}: a passphrase has at least {PASSPHRASE_MINIMUM} characters in one line; "
                "`openssl rand -hex 32` makes one"
            )
        return cls(SecretStr(text))

    def seal(self, manifest: bytes) -> str:
        """A seal of a manifest, in hexadecimal: a new salt, and the HMAC."""
        return self._seal(manifest, os.urandom(SALT_SIZE))

    def has_sealed(self, manifest: bytes, seal: str) -> bool:
        try:
            expected = self._seal(manifest, bytes.fromhex(seal[: 2 * SALT_SIZE]))
        except ValueError:
            return False
        return hmac.compare_digest(expected.encode(), seal.encode())

    def _seal(self, manifest: bytes, salt: bytes) -> str:
        scrypt = Scrypt(salt=salt, length=32, n=SCRYPT_COST, r=8, p=1)
        return salt.hex() + _hmac(scrypt.derive(self.text.get_secret_value().encode()).hex(), manifest)


def _hmac(key: str, content: bytes) -> str:
    return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()


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
