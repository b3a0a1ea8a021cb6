"""`pkgrepo backup` and `restore` of everything, `pkgrepo export` and `import` of one tenant."""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from auth_service.audit.service import OPERATORS
from common.http.server import until_stopped
from common.telemetry import configure_logs
from deploy.backup.copies import Outcome
from deploy.backup.folder import BackupFolder
from deploy.backup.key_prints import AUDIT, CLIENT_TOKEN, fingerprints, not_compared
from deploy.backup.manifest import ArchiveManifest, BackupProblem
from deploy.backup.restoring import Restoration
from deploy.backup.taking import Backup
from deploy.local.folder import DataFolder
from deploy.operator.audit import open_record
from deploy.operator.operations import open_operator
from deploy.operator.storage import open_storage
from deploy.operator.stores import offline_stores, places
from deploy.publish.progress import shown
from deploy.publish.terminal import say
from deploy.tenant_archive.exporting import Export
from deploy.tenant_archive.importing import Import

INTERRUPTED = 130  # what a shell gives for Ctrl-C
RESUMES = "Run the same command again: it goes on where it stopped."

Done = TypeVar("Done")
console = Console(highlight=False, markup=False, soft_wrap=True)

Folder = Annotated[Path, typer.Argument(help="The folder of backups.")]
Archive = Annotated[Path, typer.Argument(help="The archive, a file.", dir_okay=False)]
Data = Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.")]
AtRest = Annotated[Path | None, typer.Option(help="A new folder for `pkgrepo up`; else MONGO_URL and REDIS_URL.")]


def backup(
    folder: Folder,
    keep: Annotated[int | None, typer.Option(min=1, help="Drop all but the newest so many afterwards.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Read again what earlier backups copied.")] = False,
    data: Data = None,
) -> None:
    """Back up everything while it runs: databases and installers as they were at one moment; no keys.

    Exits with 1 where installers are missing or damaged already; the rest is in the backup.
    """
    where, backups = places(data), BackupFolder(folder.absolute())
    storage = open_storage(where.installers)
    dropped: list[str] = []

    async def work() -> Backup:
        with backups.locked(), shown(console) as progress, progress.row("Installers") as row:
            async with open_record(where) as record:
                await record.add(OPERATORS, "backup", folder=str(backups.path))
            made = Backup(backups, storage, row, check)
            await made.take(where)
            if keep:
                dropped.extend(backups.keep(keep))
        return made

    made = _run(work())
    console.print(f"{backups.path / made.name} is a backup; {made.copied} installers were copied.")
    for name in dropped:
        console.print(f"{backups.path / name} was dropped.")
    _tell_lacking(made.lacking)
    if made.lacking:
        raise typer.Exit(1)


def restore(
    folder: Folder,
    at: Annotated[str | None, typer.Option(help="The name of the backup; else the newest.")] = None,
    other_keys: Annotated[bool, typer.Option("--other-keys", help="Go on though the keys are others.")] = False,
    without_damaged: Annotated[bool, typer.Option("--without-damaged", help="Leave damaged installers out.")] = False,
    without_seal: Annotated[
        bool, typer.Option("--without-seal", help="Do not verify that nobody changed the backup.")
    ] = False,
    data: AtRest = None,
) -> None:
    """Put a backup back into empty databases and an empty storage, while no service runs."""
    backups = BackupFolder(folder.absolute())
    stored = backups.read(at)
    name = stored.name

    async def work() -> Restoration:
        async with offline_stores(DataFolder(data.absolute()) if data else None) as where:
            for key in not_compared(stored.manifest.keys, fingerprints(where)):
                console.print(f"{key} was not given, so whether it is the backup's is not known.")
            with shown(console) as progress, progress.row("Installers") as row:
                storage = open_storage(where.installers)
                restoration = Restoration(backups, stored, storage, row, without_damaged, other_keys, without_seal)
                await restoration.run(where)
            return restoration

    restored = _run(work())
    if not restored.quiet:
        console.print("MongoDB does not say who is connected: make sure that no service ran meanwhile.")
    _tell_lacking(restored.lacking)
    console.print(f"{backups.path / name} is restored. Everybody signs in again; unfinished uploads begin again.")


def export_tenant(
    tenant_id: Annotated[str, typer.Argument(help="The tenant's id.")], archive: Archive, data: Data = None
) -> None:
    """Write one tenant into an archive while everything runs: settings, users, packages, installers, clients, log."""
    where = places(data)
    storage = open_storage(where.installers)
    if archive.exists():
        raise BackupProblem(f"{archive}: is there already")

    async def work() -> tuple[ArchiveManifest, int]:
        async with open_operator(where.addresses) as operator, open_record(where) as record:
            await operator.tenants.find(tenant_id)
            await record.add(tenant_id, "tenant_export", archive=archive.name)
        with shown(console) as progress, progress.row(tenant_id) as row:
            export = Export(archive.absolute(), tenant_id, storage, row)
            return await export.run(where), export.resumed

    manifest, resumed = _run(work())
    told = f", {resumed} of them written by a run before" if resumed else ""
    console.print(
        f"{archive} has {tenant_id} as of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC, with "
        f"{len(manifest.files)} installers{told}. "
        "What is changed from then on is not in it; nor are keys, sessions and unfinished uploads."
    )


def import_tenant(archive: Archive, data: Data = None) -> None:
    """Bring a tenant in from an archive, beside running services. Whoever made it can sign in to that tenant."""
    where = places(data)
    storage = open_storage(where.installers)

    async def work() -> tuple[ArchiveManifest, list[str]]:
        with shown(console) as progress, progress.row(archive.name) as row:
            tenant = Import(archive, storage, row)
            return await tenant.run(where), tenant.other_keys

    manifest, other_keys = _run(work())
    say(console, f"{manifest.tenant_id} is here, with {len(manifest.files)} installers.")
    if CLIENT_TOKEN in other_keys:
        console.print(
            "Its clients' tokens were kept under another CLIENT_TOKEN_KEY: put that key behind the one here until they "
            "have called, or give the clients new tokens."
        )
    if AUDIT in other_keys:
        say(
            console,
            "Its audit log was sealed under another AUDIT_KEY: the entries are sealed anew here, and the log says that "
            f"it reached {manifest.audit_head} there.",
        )


def _run(work: Coroutine[object, object, Done]) -> Done:
    """What comes of the work; a stop is said, and ends the command."""
    done: list[Done] = []

    async def keep() -> None:
        done.append(await work)

    configure_logs("error")
    asyncio.run(until_stopped(keep()))
    if not done:
        console.print(f"Stopped. {RESUMES}")
        raise typer.Exit(INTERRUPTED)
    return done[0]


def _tell_lacking(lacking: Mapping[str, Outcome]) -> None:
    for name, outcome in sorted(lacking.items()):
        say(console, f"{name}: {outcome}, and left out")
