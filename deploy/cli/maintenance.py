"""`pkgrepo audit`, `scrub`, `scan` and `quota`: checks of the audit log, of stored installers and of recorded sizes."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from typer import BadParameter, Option

from auth_service.audit.store import OPERATORS, ChainBroken, Head, Selection
from auth_service.audit.store import verify as verify_chain
from auth_service.forms import time
from catalog_service.store import MongoCatalogStore
from common.errors import InvalidField
from common.telemetry import configure_logs
from deploy.cli.options import INTERRUPTED, Data, console, error_console, run_interruptible, with_stores
from deploy.operator.stores import Storage, StoreAddresses, open_database, open_storage, store_addresses
from deploy.operator.tenants import OperatorAudit, RecordedOperator, open_operator
from deploy.terminal import folding_table
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoScrubStore
from upload_service.model import Damage
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.scanning.store import MongoScanStore
from upload_service.storage.store import MongoFileIndex

logs = typer.Typer(no_args_is_help=True)

OneTenant = Annotated[str | None, Option("--tenant", help="Only this tenant. Default: all tenants.")]


@logs.command("verify")
@with_stores
async def verify(
    operator: RecordedOperator,
    tenant: Annotated[str | None, Option(help="Tenant of the log. Default: all tenants and the operators.")] = None,
    expect: Annotated[str | None, Option(help="Earlier head of the log, SEQUENCE:HASH.")] = None,
) -> None:
    """Verify the audit log and print its head; report the first entry that was removed, changed, moved or inserted.

    Keep the printed heads in another place, and compare them later with --expect.
    """
    if expect and not tenant:
        raise InvalidField("--expect", "is the head of one log; add --tenant")
    audit, expected = operator.audit, Head.parse(expect) if expect else None
    all_logs = [*(tenant.tenant_id for tenant in await operator.tenants.list()), OPERATORS]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_intact = True
    with Progress(*columns, console=error_console, transient=True) as progress:
        for name in [tenant] if tenant else all_logs:
            bar = progress.add_task(name, total=(await audit.store.newest(name)).sequence)
            advance = partial(progress.advance, bar)
            try:
                head = await verify_chain(audit.store, audit.signer, name, expected=expected, checked=advance)
                console.print(f"{name}: {head.sequence} entries are valid, head {head}")
            except ChainBroken as broken:
                console.print(f"{name}: {broken}")
                is_intact = False
            progress.remove_task(bar)
    if not is_intact:
        raise typer.Exit(1)


@logs.command()
@with_stores
async def export(
    audit: OperatorAudit,
    tenant: Annotated[str, Option(help=f"Tenant of the log; `{OPERATORS}` has the operators' own log.")],
    since: Annotated[str | None, Option(help="First day or time, such as 2026-01-31.")] = None,
) -> None:
    """Write a log to standard output as JSON lines, the oldest entry first."""
    is_complete = True
    async for entry in audit.audit.select(tenant, Selection(since=time("--since", since), oldest_first=True)):
        if entry is None:
            is_complete = False
        else:
            sys.stdout.write(json.dumps(entry.exported(), sort_keys=True) + "\n")
    if not is_complete:
        error_console.print("Unreadable entries are left out; run `pkgrepo audit verify` to find the first one.")
        raise typer.Exit(1)


@with_stores
async def quota(
    where: StoreAddresses,
    tenant: OneTenant = None,
    repair: Annotated[bool, Option("--repair", help="Correct the recorded storage.")] = False,
) -> None:
    """Compare each tenant's recorded storage with its files; exit status 1 if a difference remains."""
    await _require_tenant(where, tenant)
    table = folding_table("Tenant", "Used (recorded)", "Used (actual)", "Reserved (recorded)", "Reserved (actual)", "")
    is_repaired = True
    async with open_database(where.addresses.mongo_url, "upload") as database:
        reconciliation = Reconciliation(MongoQuotaStore(database))
        for drift in await reconciliation.find_all_drift(tenant):
            result = "repaired" if repair and await reconciliation.repair(drift) else ""
            recorded, actual = drift.actual, drift.expected
            figures = [f"{size:,}" for size in (recorded.used, actual.used, recorded.reserved, actual.reserved)]
            table.add_row(drift.tenant_id, *figures, result)
            is_repaired = is_repaired and bool(result)
    console.print(table if table.row_count else "Storage figures are correct.")
    if not is_repaired:
        console.print(
            "Some figures are not repaired. Run this with --repair, and again if uploads changed them meanwhile."
        )
        raise typer.Exit(1)


@with_stores
async def scan(
    where: StoreAddresses,
    audit: OperatorAudit,
    again: Annotated[bool, Option("--again", help="Make every verdict due again.")] = False,
    tenant: OneTenant = None,
) -> None:
    """Scan all stored installers for malware again. A verdict counts until there is a new one."""
    if not again:
        raise BadParameter("is required; upload_service scans new files by itself", param_hint="--again")
    await _require_tenant(where, tenant)
    async with open_database(where.addresses.mongo_url, "upload") as database:
        files = await MongoScanStore(database).make_due(tenant)
    await audit.add(tenant or OPERATORS, "scan_again", files=str(files))
    console.print(f"{files} files are due for a scan. upload_service scans them if SCANNER_URL is set.")


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


async def _require_tenant(where: StoreAddresses, tenant_id: str | None) -> None:
    async with open_operator(where.addresses) as operator:
        known = {tenant.tenant_id for tenant in await operator.tenants.list()}
    if tenant_id is not None and tenant_id not in known:
        raise BadParameter(f"there is no tenant {tenant_id!r}", param_hint="--tenant")
