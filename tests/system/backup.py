"""A backup as an operator makes it by hand while everything runs, and how it is played back.

The files are copied twice, around a snapshot of the databases: a file that the snapshot knows was there at the first
copy or is there at the second, unless its version was both made and deleted meanwhile. What came after the snapshot is
no record's file once that is restored, and goes with time.
"""

import asyncio
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from common.mongo import Document
from tests.system.fleet import DATABASES, Fleet


@dataclass(frozen=True)
class Backup:
    """The records by database and collection, all of one moment, and a folder of files."""

    files: Path
    records: dict[str, dict[str, list[Document]]] = field(default_factory=dict)

    async def copy_files(self, fleet: Fleet) -> None:
        """Once before the records are read, and once after."""
        await asyncio.to_thread(self._copy, fleet.stores.installers)

    async def read_records(self, fleet: Fleet) -> None:
        async with fleet.mongo.start_session(snapshot=True) as session:
            for name in DATABASES:
                database = fleet.mongo[name]
                self.records[name] = {
                    collection: await database[collection].find(session=session).to_list()
                    for collection in await database.list_collection_names()
                }

    async def restore(self, fleet: Fleet) -> None:
        """Stop the services, put back what was saved in the place of what is there, and start them."""
        for replica in [replica for replicas in fleet.replicas.values() for replica in replicas]:
            await replica.stop()
        for name, collections in self.records.items():
            await fleet.mongo.drop_database(name)
            for collection, documents in collections.items():
                if documents:
                    await fleet.mongo[name][collection].insert_many(documents)
        shutil.rmtree(fleet.stores.installers)
        shutil.copytree(self.files, fleet.stores.installers)
        await fleet.restart_ended()

    def _copy(self, installers: Path) -> None:
        """Add the files that are there; those of transfers first, because they may get their last name meanwhile."""
        for pattern in ("*/transfers/*/*", "*/*"):
            for path in installers.glob(pattern):
                copy = self.files / path.relative_to(installers)
                copy.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError, IsADirectoryError):  # It is gone, or has its last name by now.
                    shutil.copy2(path, copy)
