"""`pkgrepo migrate` of the databases, and `pkgrepo storage migrate` of the installers."""

import asyncio
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status
from typer import Option

from common.mongo import MongoDatabase
from common.mongo.schema import Migrating, Schema, outstanding
from common.mongo.schema import migrate as migrate_database
from deploy.cli.options import INTERRUPTED, RESUMES, Data, console, resumable, run_interruptible
from deploy.operator.stores import SCHEMAS, Storage, StoreAddresses, open_database, open_storage, store_addresses
from upload_service.model import StorageKind
from upload_service.storage.migration import Mover, Outcome
from upload_service.storage.store import MongoFileIndex, MongoMoveStore

PAUSE = 1.0  # seconds between two checks of work that another process has begun

storage = typer.Typer(no_args_is_help=True)
_NAMES = {StorageKind.FOLDER: "folder", StorageKind.S3: "object storage"}


@resumable
async def migrate(
    where: StoreAddresses,
    check: Annotated[bool, Option("--check", help="Show pending migrations; exit status 1 if there are any.")] = False,
) -> None:
    """Migrate the databases while services of the previous release run. New services also do this when they start."""
    is_pending = False
    for name, schema in SCHEMAS.items():
        async with open_database(where.addresses.mongo_url, name) as database:
            pending = (await outstanding(database, schema)).sentences()
            if not check:
                with console.status(name) as status:
                    await _migrate_or_wait(database, schema, status)
            for sentence in pending:
                console.print(f"{name}: {sentence}" if check else f"{name}: {sentence}: done")
            is_pending = is_pending or bool(pending)
    if check and is_pending:
        raise typer.Exit(1)
    console.print("The databases are up to date.")


async def _migrate_or_wait(database: MongoDatabase, schema: Schema, status: Status) -> None:
    """Migrate a database, or wait for another process that does."""
    while True:
        try:
            return await migrate_database(database, schema, lambda text: status.update(f"{database.name}: {text}"))
        except Migrating as problem:
            status.update(str(problem))
            await asyncio.sleep(PAUSE)


@storage.command("migrate")
def migrate_storage(
    to: Annotated[StorageKind | None, Option(help="Target storage. Default: the setting INSTALLER_STORAGE.")] = None,
    data: Data = None,
) -> None:
    """Move all installers to the folder or to S3 while the services run. Safe to re-run.

    Set INSTALLER_STORAGE of the services to the same storage, or they move files back.
    """
    where = store_addresses(data)
    opened = open_storage(where.installers)
    for kind in StorageKind:
        opened.require(kind)
    migration = StorageMigration(opened, to or opened.chosen)
    run_interruptible(migration.run(where))
    migration.report()


class StorageMigration:
    """One run: a progress bar, a line for each file that cannot be moved, and a summary."""

    def __init__(self, storage: Storage, target: StorageKind) -> None:
        self._storage = storage
        self._target = target
        self._outcomes: dict[str, Outcome] = {}
        self._remaining: int | None = None

    async def run(self, where: StoreAddresses) -> None:
        """Move all files that can be moved. Raises Unavailable for a storage, and StorageFull for the folder."""
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        async with open_database(where.addresses.mongo_url, "upload") as database:
            await database.command("ping")  # The count has a long timeout; a missing server is reported at once.
            store = MongoMoveStore(database)
            (source,) = set(StorageKind) - {self._target}
            files, size = await store.remaining(source)
            console.print(f"{files} files, {decimal(size)}, are to be moved to the {_NAMES[self._target]}.")
            with Progress(*columns, console=console) as progress:
                bar = progress.add_task("Moving", total=size)

                async def advance(count: int) -> None:
                    progress.advance(bar, count)

                check = self._storage.integrity_check(MongoFileIndex(database), advance)
                mover = Mover(store, self._storage.backends, self._storage.staging, self._target, check)
                while True:
                    async for upload, outcome in mover.moves():
                        self._outcomes[upload.upload_id] = outcome
                        if outcome is not Outcome.MOVED:
                            console.print(f"{upload.tenant_id}/{upload.server_filename}: {outcome}")
                    if not (await store.remaining(source, self._upload_ids(Outcome.FAILED)))[0]:
                        break
                    await asyncio.sleep(PAUSE)  # A service moves the rest, or the files were completed just now.
            self._remaining = await store.count(source)

    def report(self) -> None:
        """Print the summary. Raises typer.Exit unless all files were moved."""
        console.print(f"{len(self._upload_ids(Outcome.MOVED))} files were moved to the {_NAMES[self._target]}.")
        if self._remaining is None:
            console.print(f"Stopped. {RESUMES}")
            raise typer.Exit(INTERRUPTED)
        if self._remaining:
            console.print(f"{self._remaining} files were not moved: they are damaged, or could not be moved now.")
            raise typer.Exit(1)

    def _upload_ids(self, outcome: Outcome) -> list[str]:
        """The files whose last attempt had this outcome."""
        return [upload_id for upload_id, last in self._outcomes.items() if last is outcome]
