"""What is being put back, noted in the database until all of it is there: only the same may go on where it stopped."""

from deploy.backup.records import MARKERS, Client

EVERYTHING = "*"  # no tenant has this id


class Marker:
    """For one tenant, or for everything."""

    def __init__(self, client: Client, what: str, source: str) -> None:
        """`source` tells what it is put back from, and is another for each."""
        database, collection = MARKERS
        self._markers = client[database][collection]
        self._what = what
        self._source = source

    async def is_set(self) -> bool:
        """Whether this was begun, from this source, and not ended."""
        return await self._markers.find_one({"_id": self._what, "source": self._source}) is not None

    async def set(self) -> None:
        await self._markers.replace_one({"_id": self._what}, {"source": self._source}, upsert=True)

    async def clear(self) -> None:
        await self._markers.delete_one({"_id": self._what})
