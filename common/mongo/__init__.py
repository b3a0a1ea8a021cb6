"""MongoDB: one database per service, majority writes, indexes made before the first request is answered."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import pymongo
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorDatabase
from pymongo import IndexModel
from pymongo.errors import PyMongoError as MongoError
from pymongo.errors import WriteError as Refused  # What MongoDB will not write, however often it is asked.
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from common.telemetry.tracing import NOOP_SPAN, NoopSpan, traces

__all__ = [
    "Document",
    "Indexes",
    "MongoDatabase",
    "MongoError",
    "Refused",
    "make_indexes",
    "open_database",
    "unhurried",
]

Document = dict[str, Any]
MongoDatabase = AsyncIOMotorDatabase[Document]
Indexes = Mapping[str, Sequence[IndexModel]]

_BY_ITS_NAME = ("aggregate", "createIndexes", "delete", "distinct", "drop", "find", "findAndModify", "insert", "update")
# Where a command says its collection.
ON_COLLECTIONS = {**{name: name for name in _BY_ITS_NAME}, "getMore": "collection"}


@asynccontextmanager
async def open_database(url: str, name: str, caller: str = "pkgrepo") -> AsyncIterator[MongoDatabase]:
    """A service's own database. Opening does not wait for the server; a call to an absent one fails after 2 seconds.

    `caller` is how the server names the connection: by its service, or as an operator's command.
    """
    listeners: dict[str, Any] = {"event_listeners": [TracedCommands()]} if traces.enabled else {}
    client: AsyncIOMotorClient[Document] = AsyncIOMotorClient(
        url,
        appname=caller,
        w="majority",
        journal=True,
        readConcernLevel="majority",
        tz_aware=True,
        serverSelectionTimeoutMS=2000,
        connectTimeoutMS=2000,
        timeoutMS=2500,  # of one call, see `long_timeout`
        **listeners,
    )
    try:
        yield client[name]
    finally:
        client.close()


async def make_indexes(database: MongoDatabase, indexes: Indexes) -> None:
    """Make a service's indexes, by collection; those that exist already stay as they are."""
    await database.command("ping")
    with long_timeout():
        for collection, models in indexes.items():
            await database[collection].create_indexes(list(models))


def long_timeout() -> AbstractContextManager[object]:
    """Within it calls may take ten minutes, for work on whole collections; so may waiting for an absent server."""
    return pymongo.timeout(600)


class TracedCommands(CommandListener):
    """Tells traces of the commands that are sent: which, on what collection, and not one word of what they say."""

    def __init__(self) -> None:
        self._sent: dict[int, NoopSpan] = {}

    def started(self, event: CommandStartedEvent) -> None:
        name, database = event.command_name, event.database_name
        collection = str(event.command[ON_COLLECTIONS[name]]) if name in ON_COLLECTIONS else ""
        self._sent[event.request_id] = traces.command_span("mongodb", name, database=database, collection=collection)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self._sent.pop(event.request_id, NOOP_SPAN).end()

    def failed(self, event: CommandFailedEvent) -> None:
        error = event.failure.get("codeName") or event.failure.get("errtype") or "error"
        self._sent.pop(event.request_id, NOOP_SPAN).end(str(error))
