"""`pkgrepo scrub`, `scan` and `quota`: checks of the stored installers and of the recorded storage."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from typer import Option

from auth_service.audit.model import OPERATORS
from catalog_service.store import MongoCatalogStore
from common.telemetry import configure_logs
from deploy.cli.options import INTERRUPTED, Data, console, error_console, run_interruptible
from deploy.operator.stores import Storage, StoreAddresses, open_database, open_storage, store_addresses
from deploy.operator.tenants import open_operator, open_operator_audit
from deploy.terminal import folding_table
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage
from upload_service.quota.reconciliation import Drift, Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.scanning.store import MongoScanStore
from upload_service.storage.store import MongoFileIndex

OneTenant = Annotated[str | None, Option("--tenant", help="Only this tenant. Default: all tenants.")]


def scrub(
    tenant: OneTenant = None,
    json: Annotated[bool, Option("--json", help="Print the damaged files as JSON.")] = False,
    data: Data = None,
) -> None:
    """Verify all stored installers and list the damaged ones. Services do not serve them until they are repaired."""
    where = store_addresses(data)
    run = ScrubRun(open_storage(where.installers), tenant)
    with Path(os.devnull).open("w", encoding="utf-8") as devnull:
        configure_logs("error", devnull)  # The table has the same information.
        finished = run_interruptible(run.run(where))
    run.report(as_json=json, is_complete=bool(finished))


def quota(
    tenant: OneTenant = None,
    repair: Annotated[bool, Option("--repair", help="Correct the recorded storage.")] = False,
    data: Data = None,
) -> None:
    """Compare each tenant's recorded storage with its files; exit status 1 if a difference remains."""
    differences = asyncio.run(_differences(store_addresses(data), tenant, repair=repair))
    if not differences:
        console.print("Storage figures are correct.")
        return
    table = folding_table("Tenant", "Used (recorded)", "Used (actual)", "Reserved (recorded)", "Reserved (actual)", "")
    for drift, repaired in differences:
        recorded, actual = drift.actual, drift.expected
        figures = [f"{size:,}" for size in (recorded.used, actual.used, recorded.reserved, actual.reserved)]
        table.add_row(drift.tenant_id, *figures, "repaired" if repaired else "")
    console.print(table)
    if not all(repaired for _, repaired in differences):
        console.print(
            "Some figures are not repaired. Run this with --repair, and again if uploads changed them meanwhile."
        )
        raise typer.Exit(1)


def scan(
    again: Annotated[bool, Option("--again", help="Make every verdict due again.")] = False,
    tenant: OneTenant = None,
    data: Data = None,
) -> None:
    """Scan all stored installers for malware again. A verdict counts until there is a new one."""
    if not again:
        raise typer.BadParameter("is required; upload_service scans new files by itself", param_hint="--again")
    files = asyncio.run(_scan_again(store_addresses(data), tenant))
    console.print(f"{files} files are due for a scan. upload_service scans them if SCANNER_URL is set.")


async def _scan_again(where: StoreAddresses, tenant_id: str | None) -> int:
    await _require_tenant(where, tenant_id)
    async with open_operator_audit(where) as audit, open_database(where.addresses.mongo_url, "upload") as database:
        files = await MongoScanStore(database).make_due(tenant_id)
        await audit.add(tenant_id or OPERATORS, "scan_again", files=str(files))
        return files


@dataclass(frozen=True)
class Finding:
    """A damaged or unreadable file. `package_id` and `version` are "" without a package version."""

    tenant_id: str
    package_id: str
    version: str
    server_filename: str
    damage: str


@dataclass
class ScrubRun:
    """One run: a progress bar of the bytes, and the findings."""

    storage: Storage
    tenant_id: str | None
    files: int = 0
    findings: list[Finding] = field(default_factory=list)

    async def run(self, where: StoreAddresses) -> None:
        """Read everything. Raises Unavailable if a storage does not answer."""
        await _require_tenant(where, self.tenant_id)
        url = where.addresses.mongo_url
        async with open_database(url, "upload") as upload, open_database(url, "catalog") as catalog:
            store, versions = MongoScrubStore(upload), MongoCatalogStore(catalog, uploads_age=0).versions
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            total = await store.total_size(self.tenant_id)
            with Progress(*columns, TimeRemainingColumn(), console=error_console, disable=not total) as progress:
                bar = progress.add_task("Reading", total=total)

                async def advance(size: int) -> None:
                    progress.advance(bar, size)

                work = Scrub(store, self.storage.integrity_check(MongoFileIndex(upload), advance))
                done = 0
                async for installer in store.complete_uploads(self.tenant_id):
                    if damage := await work.check(installer):
                        names = await versions.names_of(installer.tenant_id, [installer.version_uid])
                        name = (names[0].package_id, names[0].version) if names else ("", "")
                        self.findings.append(Finding(installer.tenant_id, *name, installer.server_filename, damage))
                    self.files += 1
                    done += installer.size
                    progress.update(bar, completed=done)

    def report(self, *, as_json: bool, is_complete: bool) -> None:
        """Print the findings. Raises typer.Exit unless all files are intact."""
        if as_json:
            typer.echo(orjson.dumps(self.findings, option=orjson.OPT_INDENT_2))
        else:
            if self.findings:
                table = folding_table("Tenant", "Package", "Version", "File", "Damage")
                for finding in self.findings:
                    table.add_row(*asdict(finding).values())
                console.print(table)
            unreadable = sum(finding.damage == Damage.UNREADABLE for finding in self.findings)
            summary = f"{self.files} files were checked, {len(self.findings)} are damaged"
            summary += f", {unreadable} of them cannot be read." if unreadable else "."
            console.print(summary if self.files or not is_complete else "There are no stored installers to verify.")
            if not is_complete:
                console.print("Stopped before all were read.")
        if not is_complete:
            raise typer.Exit(INTERRUPTED)
        if self.findings:
            raise typer.Exit(1)


async def _differences(where: StoreAddresses, tenant_id: str | None, *, repair: bool) -> Sequence[tuple[Drift, bool]]:
    """The differences, and whether each was repaired."""
    await _require_tenant(where, tenant_id)
    async with open_database(where.addresses.mongo_url, "upload") as database:
        reconciliation = Reconciliation(MongoQuotaStore(database))
        drifts = await reconciliation.find_all_drift(tenant_id)
        return [(drift, repair and await reconciliation.repair(drift)) for drift in drifts]


async def _require_tenant(where: StoreAddresses, tenant_id: str | None) -> None:
    async with open_operator(where.addresses) as operator:
        known = {tenant.tenant_id for tenant in await operator.tenants.list()}
    if tenant_id is not None and tenant_id not in known:
        raise typer.BadParameter(f"there is no tenant {tenant_id!r}", param_hint="--tenant")
