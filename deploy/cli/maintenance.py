"""`pkgrepo scrub` and `pkgrepo quota`: what an operator does to be sure of what is stored."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from catalog_service.store import MongoCatalogStore
from common.http.server import until_stopped
from common.telemetry import configure_logs
from deploy.operator.operations import open_operator
from deploy.operator.schemas import open_database
from deploy.operator.storage import Storage, open_storage
from deploy.operator.stores import StoreAddresses, places
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoFileIndex, MongoScrubStore
from upload_service.model import Upload
from upload_service.quota.ledger_store import MongoLedgerStore
from upload_service.quota.reconciliation import Drift, Reconciliation
from upload_service.storage.ownership import Identity

INTERRUPTED = 130  # what a shell gives for Ctrl-C

console = Console(highlight=False, markup=False, soft_wrap=True)

Data = Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.")]
Only = Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")]


def scrub(
    tenant: Only = None,
    json: Annotated[bool, typer.Option("--json", help="List what is damaged as JSON.")] = False,
    data: Data = None,
) -> None:
    """Read every stored installer now and say which are damaged; those are not served until they are whole again."""
    where = places(data)
    reading = Reading(open_storage(where.installers), tenant)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        configure_logs("error", nowhere)  # The table has it all.
        asyncio.run(until_stopped(reading.run(where)))
    reading.report(as_json=json)


def quota(
    tenant: Only = None,
    repair: Annotated[bool, typer.Option("--repair", help="Set right what has drifted.")] = False,
    data: Data = None,
) -> None:
    """Hold what tenants are said to store against their uploads; exits with 1 where it differs and is not repaired."""
    found = asyncio.run(_drift(places(data), tenant, repair=repair))
    if not found:
        console.print("What tenants are said to store is what they store.")
        return
    table = Table("Tenant", "Used", "in truth", "Reserved", "in truth", "")
    for drift, repaired in found:
        seen, right = drift.seen, drift.right
        figures = [f"{number:,}" for number in (seen.used, right.used, seen.reserved, right.reserved)]
        table.add_row(drift.tenant_id, *figures, "repaired" if repaired else "")
    console.print(table)
    if not all(repaired for _, repaired in found):
        console.print("Some are not repaired. Run this with --repair, again where uploads went on meanwhile.")
        raise typer.Exit(1)


@dataclass(frozen=True)
class Finding:
    """A file that is damaged, or cannot be read. Without a package version `package_id` and `version` are ""."""

    tenant_id: str
    package_id: str
    version: str
    server_filename: str
    damage: str


@dataclass
class Reading:
    """The command at work: a bar of the bytes to be read, and what was found."""

    storage: Storage
    tenant_id: str | None
    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    whole: bool = False  # whether all was read

    async def run(self, where: StoreAddresses) -> None:
        """Read everything. Raises Unavailable where a storage does not answer."""
        await _check_tenant(where, self.tenant_id)
        async with (
            open_database(where.addresses.mongo_url, "upload") as upload,
            open_database(where.addresses.mongo_url, "catalog") as catalog,
        ):
            store, versions = MongoScrubStore(upload), MongoCatalogStore(catalog, uploads_age=0).versions
            with _progress() as progress:
                bar = progress.add_task("Reading", total=await store.volume(self.tenant_id))

                async def advance(size: int) -> None:
                    progress.advance(bar, size)

                identity = Identity(MongoFileIndex(upload), self.storage.homes, self.storage.folder)
                work = Scrub(store, self.storage.homes, identity, after_block=advance)
                done = 0
                async for installer in store.kept(self.tenant_id):
                    if damage := await _look(work, installer):
                        names = await versions.names_of(installer.tenant_id, [installer.version_uid])
                        package_id, version = (names[0].package_id, names[0].version) if names else ("", "")
                        self.findings.append(
                            Finding(installer.tenant_id, package_id, version, installer.server_filename, damage)
                        )
                    self.files += 1
                    done += installer.size
                    progress.update(bar, completed=done)
        self.whole = True

    def report(self, *, as_json: bool) -> None:
        """Say what was found. Raises typer.Exit where not all is whole."""
        if as_json:
            typer.echo(orjson.dumps([asdict(finding) for finding in self.findings], option=orjson.OPT_INDENT_2))
        else:
            self._report()
        if not self.whole:
            raise typer.Exit(INTERRUPTED)
        if self.findings:
            raise typer.Exit(1)

    def _report(self) -> None:
        if self.findings:
            table = Table("Tenant", "Package", "Version", "File", "Damage")
            for finding in self.findings:
                table.add_row(*asdict(finding).values())
            console.print(table)
        console.print(f"{self.files} files were read, {len(self.findings)} are damaged.")
        if not self.whole:
            console.print("Stopped before all were read.")


async def _look(work: Scrub, installer: Upload) -> str:
    try:
        return await work.check(installer)
    except OSError as error:  # A bad spot of the disk; there may be more of them.
        return f"cannot be read: {error.strerror}"


async def _drift(where: StoreAddresses, tenant_id: str | None, *, repair: bool) -> Sequence[tuple[Drift, bool]]:
    """What has drifted, and whether it was repaired."""
    await _check_tenant(where, tenant_id)
    async with open_database(where.addresses.mongo_url, "upload") as database:
        reconciliation = Reconciliation(MongoLedgerStore(database))
        found = await reconciliation.all_drift(tenant_id)
        return [(drift, repair and await reconciliation.repair(drift)) for drift in found]


async def _check_tenant(where: StoreAddresses, tenant_id: str | None) -> None:
    async with open_operator(where.addresses) as operator:
        known = {tenant.tenant_id for tenant in await operator.tenants.list()}
    if tenant_id is not None and tenant_id not in known:
        raise typer.BadParameter(f"there is no tenant {tenant_id!r}", param_hint="--tenant")


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
