"""`pkgrepo backup` and `restore` of everything, `pkgrepo export` and `import` of one tenant."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from auth_service.audit.store import OPERATORS
from auth_service.store import MongoBackupStore
from deploy.backup.creator import BackupCreator, print_retries, run_with_retries
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import CopyOutcome
from deploy.backup.package_restorer import PackageRestorer
from deploy.backup.records import AUDIT, CLIENT_TOKEN, ArchiveManifest, BackupProblem, Passphrase
from deploy.backup.restorer import BackupRestorer
from deploy.backup.tenant import TenantExporter, TenantImporter
from deploy.cli.options import TenantId, console, resumable, run_until_stopped
from deploy.local.folder import DataFolder
from deploy.operator.stores import Storage, StoreAddresses, offline_stores, open_database, open_storage, store_addresses
from deploy.operator.tenants import RecordedOperator, open_operator_audit
from deploy.terminal import print_line, show_progress

Folder = Annotated[Path, Argument(help="Folder of backups.")]
At = Annotated[str | None, Option(help="Name of the backup. Default: the newest.")]
WithoutSeal = Annotated[bool, Option("--without-seal", help="Do not verify that nobody changed the backup.")]
Archive = Annotated[Path, Argument(help="Archive file.", dir_okay=False)]
SEAL_HELP = "File with the passphrase that seals the archive, the same for export and import; - is the input."

packages = typer.Typer(no_args_is_help=True)


@resumable
async def backup(
    where: StoreAddresses,
    storage: Storage,
    folder: Folder,
    keep: Annotated[int | None, Option(min=1, help="Keep only the newest N backups.", metavar="N")] = None,
    check: Annotated[bool, Option("--check", help="Verify the installers of earlier backups again.")] = False,
) -> None:
    """Back up databases and installers, without keys, while the services run.

    Exit status 1: installers are missing or damaged; the backup has all others.
    """
    backups = BackupFolder(folder.absolute())

    async def record() -> None:
        async with open_operator_audit(where) as audit:
            await audit.add(OPERATORS, "backup", folder=str(backups.path))

    async def record_success(name: str) -> None:
        async with open_database(where.addresses.mongo_url, "auth") as database:
            await MongoBackupStore(database).record(name, datetime.now(UTC))

    print_retries(partial(print_line, console))
    with backups.locked(), show_progress(console) as rows, rows("Installers") as progress:
        await run_with_retries(record)
        creator = BackupCreator(backups, storage, progress, check)
        await run_with_retries(partial(creator.run, where))
        await run_with_retries(partial(record_success, creator.name))
        deleted = backups.keep_newest(keep) if keep else ()
    console.print(f"Backup {backups.path / creator.name} was created; {creator.copied} installers were copied.")
    for name in deleted:
        console.print(f"Old backup {backups.path / name} was deleted.")
    _report_lacking(creator.lacking)
    if creator.lacking:
        raise typer.Exit(1)


def restore(
    folder: Folder,
    at: At = None,
    other_keys: Annotated[
        bool, Option("--other-keys", help="Restore even if the current keys differ from the backup's.")
    ] = False,
    without_damaged: Annotated[bool, Option("--without-damaged", help="Restore without damaged installers.")] = False,
    without_seal: WithoutSeal = False,
    data: Annotated[
        Path | None,
        Option(help="New folder for `pkgrepo up`. Default: the settings MONGO_URL, REDIS_URL and AUDIT_KEY."),
    ] = None,
) -> None:
    """Restore a backup. Databases and storage must be empty and all services stopped."""
    backups = BackupFolder(folder.absolute())
    stored = backups.load(at)

    async def work() -> BackupRestorer:
        async with offline_stores(DataFolder(data.absolute()) if data else None) as where:
            for key in stored.manifest.uncompared_keys(where):
                console.print(f"{key} is not set, so it cannot be compared with the backup's key.")
            with show_progress(console) as rows, rows("Installers") as progress:
                storage, options = open_storage(where.installers), (without_damaged, other_keys, without_seal)
                restorer = BackupRestorer(backups, stored, storage, progress, *options)
                await restorer.run(where)
            return restorer

    restored = run_until_stopped(work())
    if not restored.services_stopped:
        console.print("MongoDB does not show its connections: make sure that no service ran during the restore.")
    _report_lacking(restored.lacking)
    console.print(f"Backup {stored.path} was restored. All users must sign in again.")
    console.print("Unfinished uploads must be started again.")


@packages.command("restore")
@resumable
async def restore_package(
    where: StoreAddresses,
    storage: Storage,
    tenant_id: TenantId,
    package_id: Annotated[str, Argument(help="Id of the package.")],
    folder: Folder,
    at: At = None,
    without_damaged: Annotated[
        bool, Option("--without-damaged", help="Leave out versions whose installer is damaged.")
    ] = False,
    without_seal: WithoutSeal = False,
) -> None:
    """Restore a deleted package with its versions and installers from a backup, while the services run."""
    backups = BackupFolder(folder.absolute())
    stored, options = backups.load(at), (without_damaged, without_seal)
    with show_progress(console) as rows, rows("Installers") as progress:
        restored = PackageRestorer(backups, stored, tenant_id, package_id, storage, progress, *options)
        await restored.run(where)
    print_line(console, f"{package_id} was restored from {stored.path} with {len(restored.versions)} versions.")
    for version in restored.versions:
        if version.is_withdrawn:
            status = version.status.replace("_", " ")
            print_line(console, f"{version.version} ({version.uid}) is {status}: {version.release.reason.text}")
    if not restored.is_active:
        console.print("The package is inactive; set it active to offer it.")
    _report_lacking(restored.lacking)


@resumable
async def export_tenant(
    where: StoreAddresses,
    storage: Storage,
    operator: RecordedOperator,
    tenant_id: TenantId,
    archive: Archive,
    passphrase_file: Annotated[typer.FileText, Option(help=SEAL_HELP, metavar="FILE")],
) -> None:
    """Export one tenant into an archive: settings, users, packages, installers, clients, audit log.

    The passphrase seals the archive: it shows every change, but hides nothing.
    """
    passphrase = Passphrase.read(passphrase_file)
    if archive.exists():
        raise BackupProblem(f"{archive}: exists already; choose another name")
    await operator.tenants.find(tenant_id)
    await operator.audit.add(tenant_id, "tenant_export", archive=archive.name)
    with show_progress(console) as rows, rows(tenant_id) as progress:
        exporter = TenantExporter(archive.absolute(), tenant_id, passphrase, storage, progress)
        manifest = await exporter.run(where)
    from_before = f", {exporter.resumed} of them from the interrupted run" if exporter.resumed else ""
    console.print(
        f"{archive} has {tenant_id} as of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC, with "
        f"{len(manifest.files)} installers{from_before}. "
        "It does not contain later changes, keys, sessions, and unfinished uploads."
    )


def import_tenant(archive: Path, passphrase: Passphrase, data: Path | None) -> None:
    """Import a tenant from an archive while the services run."""
    where = store_addresses(data)
    storage = open_storage(where.installers)

    async def work() -> tuple[ArchiveManifest, list[str]]:
        with show_progress(console) as rows, rows(archive.name) as progress:
            importer = TenantImporter(archive, passphrase, storage, progress)
            return await importer.run(where), importer.other_keys

    manifest, other_keys = run_until_stopped(work())
    print_line(
        console,
        f"Tenant {manifest.tenant_id} was imported as of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC, with "
        f"{len(manifest.files)} installers.",
    )
    if CLIENT_TOKEN in other_keys:
        console.print(
            "Its clients' tokens were stored under another CLIENT_TOKEN_KEY: add that key after the one here until "
            "they have called, or give the clients new tokens."
        )
    if AUDIT in other_keys:
        print_line(
            console,
            "Its audit log was sealed under another AUDIT_KEY: the entries are sealed again here, and the log records "
            f"its earlier head {manifest.audit_head}.",
        )


def _report_lacking(lacking: Mapping[str, CopyOutcome]) -> None:
    for name, outcome in sorted(lacking.items()):
        print_line(console, f"{name}: {outcome}, and left out")
