"""The schemas of the services' databases. Operators' commands do not touch a database of a newer schema."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from auth_service.store import SCHEMA as AUTH
from catalog_service.store import SCHEMA as CATALOG
from client_registry.store import SCHEMA as CLIENTS
from common import mongo
from common.mongo import CALL_TIMEOUT, MongoDatabase
from common.mongo.migration import migrate, migrate_again
from common.mongo.schema import Schema, SchemaIsNewer, set_version, version_of
from deploy.operator.stores import StoreAddresses
from upload_service.store import SCHEMA as UPLOAD

SCHEMAS: dict[str, Schema] = {"auth": AUTH, "catalog": CATALOG, "upload": UPLOAD, "clients": CLIENTS}
KNOWN = {name: schema.version for name, schema in SCHEMAS.items()}


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
