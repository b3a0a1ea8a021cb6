"""Tenants with catalogs, clients and blacklists, as documents."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import cycle
from uuid import uuid4

from catalog_service.model.enumerations import Architecture, FileType, Scope
from catalog_service.model.packages import Package, package_document
from catalog_service.model.releases import Stage
from catalog_service.model.versions import PackageVersion, document_of
from client_registry.blacklist.store import Entry, MongoBlacklistStore
from client_registry.clients.store import Client, MongoClientStore
from common.mongo import Document, MongoDatabase, long_timeout, open_database
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench

LOGO = 3 << 10  # bytes
BATCH = 500
CHANNELS = ("stable", "beta", "nightly")
VERSIONS = ("1.0.0", "1.1.0", "1.2.0")  # one in each channel


async def catalog(run: Run, bench: Bench, packages: int, *, logos: bool = True, name: str = "") -> Account:
    """A tenant with packages of three versions each, with or without logos of 3 KB. Created once per run.

    The documents are written as the stores write them: through the interface it would take longer than all parts.
    """
    account = await bench.account(f"bench-{name or packages}{'' if logos else '-bare'}")
    if account.tenant_id not in run.seeded:
        async with open_database(run.stores.mongo_url, "catalog") as database:
            await _write(database, account.tenant_id, packages, logos=logos)
        run.seeded.add(account.tenant_id)
    return account


async def clients(run: Run, account: Account, number: int, entries: int) -> None:
    """Add clients and blacklist entries to a tenant. Each entry names one client and one package."""
    began = datetime.now(UTC) - timedelta(days=90)
    async with open_database(run.stores.mongo_url, "clients") as database:
        store, blacklist = MongoClientStore(database), MongoBlacklistStore(database)
        ids = [str(uuid4()) for _ in range(number)]
        taken = await store.slots(account.tenant_id)  # slots of clients that other parts have added
        for slot, client_id in enumerate(ids, start=max(taken, default=0) + 1):
            at = began + timedelta(minutes=slot)
            client = Client(client_id, f"pc-{slot:05}.example.com", at, "a1b2", "192.0.2.7", at, program=1)
            await store.add(account.tenant_id, client, digest=client_id, key_id="", slot=slot)
        for number_of_entry in range(entries):
            entry = Entry(
                str(uuid4()), ids[number_of_entry % number], None, (package_id(number_of_entry),), None, began
            )
            await blacklist.add_entry(account.tenant_id, entry)


def package_id(number: int) -> str:
    return f"Bench.Package.{number:06}"


async def _write(database: MongoDatabase, tenant_id: str, packages: int, *, logos: bool) -> None:
    """Write the documents in the format of the stores."""
    noise = random.Random(packages)  # noqa: S311  the same each time
    for start in range(0, packages, BATCH):
        batch = range(start, min(start + BATCH, packages))
        documents = [_package(tenant_id, number, noise.randbytes(LOGO if logos else 0)) for number in batch]
        with long_timeout():
            await database["packages"].insert_many(documents)
            await database["versions"].insert_many(list(_versions(tenant_id, batch)))


async def add_staged_versions(
    database: MongoDatabase, tenant_id: str, packages: Iterable[int], stages: Sequence[Stage]
) -> None:
    """Add a newest version to these packages, in one stage after the other."""
    documents = [
        {**next(_versions(tenant_id, range(each, each + 1), ["2.0.0"])), "stage": asdict(stage)}
        for each, stage in zip(packages, cycle(stages), strict=False)
    ]
    with long_timeout():
        await database["versions"].insert_many(documents)


def _package(tenant_id: str, number: int, logo: bytes) -> Document:
    name = package_id(number)
    package = Package(
        package_id=name,
        package_uid=str(uuid4()),
        name=f"The program {name}",
        publisher="Example Ltd.",
        description="It does what programs of its kind do. " * 5,
        logo=logo,
    )
    return {"tenant_id": tenant_id, "halfway": False, **package_document(package)}


def _versions(tenant_id: str, numbers: range, versions: Sequence[str] = VERSIONS) -> Iterator[Document]:
    for number in numbers:
        for version, channel in zip(versions, CHANNELS, strict=False):
            package_version = PackageVersion(
                uid=str(uuid4()),
                package_id=package_id(number),
                version=version,
                architecture=Architecture.X64,
                installer_type=FileType.MSI,
                scope=Scope.MACHINE,
                server_filename=f"{uuid4()}.msi",
                channel=channel,
                size=1000,
                sha256="ab" * 32,
            )
            keys = {"version_key": package_version.version, "installer_key": package_version.installer_key}
            state = {"state": "active", "halfway": False, "changed_at": datetime.now(UTC)}
            yield {"tenant_id": tenant_id, **document_of(package_version), **keys, **state}
