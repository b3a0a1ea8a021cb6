"""What the services' databases are to be, as operators' commands know it: none touches one that is newer."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from pydantic import SecretStr

from auth_service.migrations import schema as auth_schema
from catalog_service.migrations import SCHEMA as CATALOG
from client_registry.migrations import SCHEMA as CLIENTS
from common import mongo
from common.mongo import MongoDatabase
from common.mongo.migration import migrate, migrate_again
from common.mongo.schema import Schema, SchemaIsNewer, set_version, version_of
from deploy.operator.stores import StoreAddresses
from upload_service.migrations import SCHEMA as UPLOAD


def _schemas(audit_key: SecretStr) -> dict[str, Schema]:
    return {"auth": auth_schema(audit_key), "catalog": CATALOG, "upload": UPLOAD, "clients": CLIENTS}


KNOWN = {name: schema.version for name, schema in _schemas(SecretStr("")).items()}


def schemas(where: StoreAddresses) -> dict[str, Schema]:
    """Those of all services, by their databases. Raises BadSetting where the key of the audit log is not known."""
    return _schemas(where.require_audit_key())


@asynccontextmanager
async def open_database(url: str, name: str) -> AsyncIterator[MongoDatabase]:
    """A service's database, for an operator's command. Raises SchemaIsNewer where any service's is newer than this."""
    async with mongo.open_database(url, name) as database:
        check_known(await versions(database))
        yield database


async def versions(database: MongoDatabase) -> dict[str, int]:
    """How far each service's database is, beside this one."""
    return {name: await version_of(database.client[name]) for name in KNOWN}


async def bring_up(where: StoreAddresses, reached: Mapping[str, int]) -> None:
    """Bring records up to date that were put into databases of which no service runs; they have reached this."""
    for name, schema in schemas(where).items():
        async with mongo.open_database(where.addresses.mongo_url, name) as database:
            await set_version(database, reached.get(name, 0))
            await migrate(database, schema)


async def bring_up_again(where: StoreAddresses, reached: Mapping[str, int]) -> None:
    """The same for records that were put among others, which are up to date already."""
    for name, schema in schemas(where).items():
        async with mongo.open_database(where.addresses.mongo_url, name) as database:
            await migrate_again(database, schema, reached.get(name, 0))


def check_known(found: Mapping[str, int], where: str = "") -> None:
    """Raises SchemaIsNewer; `where` stands before the database's name."""
    for name, version in found.items():
        known = KNOWN.get(name, 0)
        if version > known:
            raise SchemaIsNewer(f"{where}{name}", version, known)
