"""The stores for operators' commands: addresses, databases, the storage of installers, and causes of failures.

The addresses are of the folder of a running `up`, or of the environment. A command does not touch a database of a newer
schema.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr
from pymongo.errors import ConnectionFailure, OperationFailure, ServerSelectionTimeoutError
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as RedisUnreachable
from redis.exceptions import TimeoutError as RedisTimeout

from auth_service.settings import AuditKey
from auth_service.store import SCHEMA as AUTH
from catalog_service.store import SCHEMA as CATALOG
from client_registry.store import SCHEMA as CLIENTS
from common import mongo
from common.auth.signing import Keys
from common.mongo import CALL_TIMEOUT, MongoDatabase, MongoError
from common.mongo.schema import Schema, SchemaIsNewer, migrate, migrate_again, set_version, version_of
from common.settings import BadSetting, EnvironmentSettings, Key, MongoUrl, RedisUrl, load
from deploy.local.folder import Addresses, DataFolder
from deploy.local.servers import mongod, redis
from upload_service.model import StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.integrity import AfterBlock, IntegrityCheck, StorageOwnership
from upload_service.storage.migration import Staging
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.store import MongoFileIndex
from upload_service.store import SCHEMA as UPLOAD

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18  # MongoDB's codes
SCHEMAS: dict[str, Schema] = {"auth": AUTH, "catalog": CATALOG, "upload": UPLOAD, "clients": CLIENTS}
KNOWN = {name: schema.version for name, schema in SCHEMAS.items()}


class StoreSettings(EnvironmentSettings):
    """The stores, the folder of installers and the keys that the environment names."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    audit_key: AuditKey | None = None
    client_token_key: Key | None = None
    installers: Path | None = None


@dataclass(frozen=True)
class StoreAddresses:
    """The addresses of the stores, the folder of installers, and the keys of the audit log and of client tokens."""

    addresses: Addresses
    installers: Path | None
    audit_key: SecretStr | None
    client_token_key: Keys | None = None

    def require_audit_key(self) -> SecretStr:
        """The keys of the audit log. Raises BadSetting without them."""
        if self.audit_key is None:
            raise BadSetting(
                "AUDIT_KEY: is missing; set it as for auth_service, to record this command in the audit log"
            )
        return self.audit_key


def store_addresses(data: Path | None) -> StoreAddresses:
    """The running stores. Raises FolderProblem if nothing runs on the folder, and BadSetting."""
    if data is not None:
        folder = DataFolder(data.absolute())
        return _of_folder(folder, folder.addresses())
    stores = load(StoreSettings)
    if stores.mongo_url is None or stores.redis_url is None:
        raise BadSetting("give --data DIR of a running `pkgrepo up`, or set MONGO_URL and REDIS_URL")
    addresses = Addresses("", stores.mongo_url, stores.redis_url)
    return StoreAddresses(addresses, stores.installers, stores.audit_key, stores.client_token_key)


@asynccontextmanager
async def offline_stores(data: DataFolder | None) -> AsyncIterator[StoreAddresses]:
    """The stores of an installation that does not run. The stores of a data folder run during the block.

    Raises ServerUnavailable if a `pkgrepo up` runs on the folder, and as `store_addresses` does.
    """
    if data is None:
        yield store_addresses(None)
        return
    data.prepare()
    async with local_stores(data) as (mongo_url, redis_url):
        yield _of_folder(data, Addresses("", mongo_url, redis_url))


@asynccontextmanager
async def local_stores(folder: DataFolder) -> AsyncIterator[tuple[str, str]]:
    """The URLs of MongoDB and Redis: of the settings, else of servers for the block. Raises as `offline_stores`."""
    settings = load(StoreSettings)
    async with AsyncExitStack() as stack:
        mongo_url, redis_url = settings.mongo_url, settings.redis_url
        if mongo_url is None:
            mongo_url = await stack.enter_async_context(mongod(folder.path / "mongodb"))
        if redis_url is None:
            redis_url = await stack.enter_async_context(redis(folder.path / "redis"))
        yield mongo_url, redis_url


def _of_folder(folder: DataFolder, addresses: Addresses) -> StoreAddresses:
    return StoreAddresses(addresses, folder.installers, folder.audit_key, Keys(folder.key("client-token")))


@asynccontextmanager
async def open_database(url: str, name: str, *, timeout: float = CALL_TIMEOUT) -> AsyncIterator[MongoDatabase]:
    """Open a service's database. Raises SchemaIsNewer if any service's schema is newer than this program."""
    async with mongo.open_database(url, name, timeout=timeout) as database:
        require_known_schemas(await versions(database))
        yield database


async def versions(database: MongoDatabase) -> dict[str, int]:
    """The schema version of each service's database, on the server of this one."""
    return {name: await version_of(database.client[name]) for name in KNOWN}


async def migrate_restored(where: StoreAddresses, schema_versions: Mapping[str, int]) -> None:
    """Migrate records that were restored into empty databases; `schema_versions` are of their databases."""
    for name, schema in SCHEMAS.items():
        async with mongo.open_database(where.addresses.mongo_url, name) as database:
            await set_version(database, schema_versions.get(name, 0))
            await migrate(database, schema)


async def migrate_imported(where: StoreAddresses, schema_versions: Mapping[str, int]) -> None:
    """Migrate records that were imported into databases of the current schema."""
    for name, schema in SCHEMAS.items():
        async with mongo.open_database(where.addresses.mongo_url, name) as database:
            await migrate_again(database, schema, schema_versions.get(name, 0))


def require_known_schemas(versions: Mapping[str, int], prefix: str = "") -> None:
    """Raise SchemaIsNewer for a newer schema; the message has `prefix` before the database's name."""
    for name, version in versions.items():
        known = KNOWN.get(name, 0)
        if version > known:
            raise SchemaIsNewer(f"{prefix}{name}", version, known)


@dataclass(frozen=True)
class Storage:
    """`folder` is shared by all replicas, `chosen` is the kind of storage for new installers."""

    folder: Path
    backends: StorageBackends
    staging: Staging
    chosen: StorageKind

    def path(self, upload: Upload) -> Path:
        """The path of an installer in the folder. Raises ValueError for a record whose names lead elsewhere."""
        return FolderStorage(self.folder, PartFiles(self.folder)).path(upload)

    def integrity_check(self, index: MongoFileIndex, after_block: AfterBlock) -> IntegrityCheck:
        """A check of stored files, which calls `after_block` with the length of each block that it reads."""
        return IntegrityCheck(self.backends, StorageOwnership(index, self.backends, self.folder), after_block)

    def require(self, kind: StorageKind) -> None:
        """Raise BadSetting if the settings lack this storage."""
        if kind not in self.backends.kinds:
            raise BadSetting("S3_URL: is missing; set it as for the upload service")


def open_storage(installers: Path | None) -> Storage:
    """Open the storage; `installers` is the folder. Raises BadSetting without a folder."""
    if installers is None:
        raise BadSetting("INSTALLERS: set it to the folder of installers")
    settings, parts = load(StorageSettings), PartFiles(installers)
    folder = FolderStorage(installers, parts)
    objects = S3Storage(settings.object_storage) if settings.object_storage else None
    return Storage(installers, storage_backends(folder, objects), Staging(folder, parts), settings.installer_storage)


def is_temporary(error: MongoError) -> bool:
    """Whether the call may succeed later: MongoDB was slow, or it is restarted, elects a primary, or is unreachable."""
    return error.timeout or isinstance(error, ConnectionFailure)


def describe(error: Exception) -> str:
    """The cause of a MongoError or RedisError, without the driver's text, which may have addresses."""
    store, setting = ("MongoDB", "MONGO_URL") if isinstance(error, MongoError) else ("Redis", "REDIS_URL")
    code = error.code if isinstance(error, OperationFailure) else None
    if code == AUTHENTICATION_FAILED or isinstance(error, AuthenticationError):
        cause = f"refuses the user or the password; check {setting}"
    elif code == UNAUTHORIZED or isinstance(error, NoPermissionError):
        cause = f"refuses the command, because the user of {setting} lacks a right"
    elif _is_slow(error):
        cause = "did not answer in time; it is overloaded, or the network is slow"
    elif isinstance(error, ConnectionFailure | RedisUnreachable):
        cause = f"is not reached, or has no primary; check {setting} and whether it runs"
    else:
        cause = f"refused a command; check {setting}"
    return f"{store} {cause} ({type(error).__name__}{'' if code is None else f' {code}'})"


def _is_slow(error: Exception) -> bool:
    """Whether a store that is reached did not answer in time."""
    if isinstance(error, MongoError):
        return error.timeout and not isinstance(error, ServerSelectionTimeoutError)
    return isinstance(error, RedisTimeout)
