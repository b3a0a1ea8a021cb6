"""Databases of the tests' own, and the commands that a store sends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from motor.motor_asyncio import AsyncIOMotorClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from common.mongo import Document, Indexes, MongoDatabase, make_indexes


@asynccontextmanager
async def own_database(
    mongo_url: str, name: str = "", indexes: Indexes | None = None, **options: Any
) -> AsyncIterator[MongoDatabase]:
    """Open a database as a service does, by default one with a unique name, and drop it at the end."""
    options = {"tz_aware": True, "w": "majority", "readConcernLevel": "majority", **options}
    mongo: AsyncIOMotorClient[Document] = AsyncIOMotorClient(mongo_url, **options)
    database = mongo[name or f"test_{uuid4().hex[:12]}"]
    try:
        await make_indexes(database, indexes or {})
        yield database
    finally:
        await mongo.drop_database(database.name)
        mongo.close()


class RecordedCommands(CommandListener):
    """Records the commands of these names, or all commands."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self.commands: list[Document] = []

    def started(self, event: CommandStartedEvent) -> None:
        if not self._names or event.command_name in self._names:
            self.commands.append(dict(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing is recorded."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing is recorded."""
