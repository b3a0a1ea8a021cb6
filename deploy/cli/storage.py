"""`pkgrepo storage …`: where installers are kept."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from common.http.server import until_stopped
from common.telemetry import configure_logs
from deploy.operator.schemas import open_database
from deploy.operator.storage import Storage, open_storage
from deploy.operator.stores import StoreAddresses, places
from upload_service.maintenance.store import MongoFileIndex
from upload_service.model import StorageKind
from upload_service.storage.migration import Mover, Outcome
from upload_service.storage.migration_store import MongoMoveStore
from upload_service.storage.ownership import StorageOwnership

PAUSE = 1.0  # seconds between two looks at what others have in hand
INTERRUPTED = 130  # what a shell gives for Ctrl-C

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)

Data = Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.")]
To = Annotated[StorageKind | None, typer.Option(help="Where to; else where INSTALLER_STORAGE says.")]


@app.callback()
def storage() -> None:
    """Where installers are kept."""


@app.command()
def migrate(to: To = None, data: Data = None) -> None:
    """Move every installer to one home, beside the running service; run again, it goes on where it stopped.

    The services' own INSTALLER_STORAGE should say the same home, else they move files back.
    """
    where = places(data)
    found = open_storage(where.installers)
    chosen = to or found.chosen
    for home in StorageKind:
        found.check(home)
    configure_logs("error")
    moving = Moving(found, chosen)
    asyncio.run(until_stopped(moving.run(where)))
    moving.report()


class Moving:
    """The command at work: a bar, a line for each file that stays, and a summary."""

    def __init__(self, storage: Storage, chosen: StorageKind) -> None:
        self._storage = storage
        self._chosen = chosen
        self._outcomes: dict[str, Outcome] = {}
        self._stay: int | None = None

    async def run(self, where: StoreAddresses) -> None:
        """Move until nothing is left but what cannot be moved.

        Raises:
            Unavailable: a home does not answer, or is not the database's.
            StorageFull: the folder has no room.
        """
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        async with open_database(where.addresses.mongo_url, "upload") as database:
            await database.command("ping")  # The count has time; that there is no server is said at once.
            store = MongoMoveStore(database)
            (source,) = set(StorageKind) - {self._chosen}
            files, size = await store.remaining(source)
            console.print(f"{files} files, {decimal(size)}, are to be moved to the {_NAMES[self._chosen]}.")
            with Progress(*columns, console=console) as progress:
                bar = progress.add_task("Moving", total=size)

                async def advance(size: int) -> None:
                    progress.advance(bar, size)

                mover = Mover(
                    store,
                    self._storage.homes,
                    self._storage.staging,
                    self._chosen,
                    StorageOwnership(MongoFileIndex(database), self._storage.homes, self._storage.folder),
                    after_block=advance,
                )
                while (await store.remaining(source, self._having(Outcome.FAILED)))[0]:
                    async for upload, outcome in mover.moves():
                        self._outcomes[upload.upload_id] = outcome
                        if outcome is not Outcome.MOVED:
                            console.print(f"{upload.tenant_id}/{upload.server_filename}: {outcome}", markup=False)
                    await asyncio.sleep(PAUSE)  # Others have the rest in hand, or it is only just complete.
                await mover.remove_leftovers()
            self._stay = await store.count(source)

    def report(self) -> None:
        """Say what came of it. Raises typer.Exit where not all is moved."""
        console.print(f"{len(self._having(Outcome.MOVED))} files were moved to the {_NAMES[self._chosen]}.")
        if self._stay is None:
            console.print("Stopped; run again, it goes on from here.")
            raise typer.Exit(INTERRUPTED)
        if self._stay:
            console.print(f"{self._stay} files stay where they are: they are damaged, or could not be moved now.")
            raise typer.Exit(1)

    def _having(self, outcome: Outcome) -> list[str]:
        """The upload ids of the files that this became of, when they were last tried."""
        return [upload_id for upload_id, became in self._outcomes.items() if became is outcome]


_NAMES = {StorageKind.FOLDER: "folder", StorageKind.S3: "object storage"}
