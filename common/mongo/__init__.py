"""MongoDB: one database per service, majority writes, indexes created before the first request."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing
from typing import Any

import pymongo
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorDatabase
from pymongo import IndexModel
from pymongo.errors import ConnectionFailure, PyMongoError, WriteError
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from common.telemetry import NOOP_SPAN, NoopSpan, traces

MongoError = PyMongoError
WriteRejected = WriteError  # MongoDB rejects it however often it is tried.
Document = dict[str, Any]
MongoDatabase = AsyncIOMotorDatabase[Document]
Indexes = Mapping[str, Sequence[IndexModel]]

_COMMANDS = ["aggregate", "createIndexes", "delete", "distinct", "drop", "find", "findAndModify", "insert", "update"]
# The field of a command that names its collection.
CALL_TIMEOUT = 2.5  # seconds of one call, see `long_timeout`
ON_COLLECTIONS = {**{name: name for name in _COMMANDS}, "getMore": "collection"}


@asynccontextmanager
async def open_database(
    url: str, name: str, caller: str = "pkgrepo", *, timeout: float = CALL_TIMEOUT
) -> AsyncIterator[MongoDatabase]:
    """Open a database. It does not wait for the server; a call to an absent server fails after 2 seconds.

    `caller` is the name of the connection in the server: the service, or `pkgrepo` for operator commands. `timeout` is
    the time limit of one call, in seconds.
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
        timeoutMS=round(timeout * 1000),
        **listeners,
    )
    with closing(client):
        yield client[name]


async def make_indexes(database: MongoDatabase, indexes: Indexes) -> None:
    """Create a service's indexes, by collection; existing ones stay."""
    await database.command("ping")
    with long_timeout():
        for collection, models in indexes.items():
            await database[collection].create_indexes(list(models))


def is_mongo_outage(error: MongoError) -> bool:
    """Whether the server was away or too slow, so that the same call may succeed later."""
    return isinstance(error, ConnectionFailure) or error.timeout


def long_timeout() -> AbstractContextManager[object]:
    """Within the block, calls may take ten minutes, for work on whole collections; so may waiting for the server."""
    return pymongo.timeout(600)


class TracedCommands(CommandListener):
    """Traces each command by its name and collection, never by its content."""

    def __init__(self) -> None:
        self._spans: dict[int, NoopSpan] = {}

    def started(self, event: CommandStartedEvent) -> None:
        name, database = event.command_name, event.database_name
        collection = str(event.command[ON_COLLECTIONS[name]]) if name in ON_COLLECTIONS else ""
        self._spans[event.request_id] = traces.command_span("mongodb", name, database=database, collection=collection)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self._spans.pop(event.request_id, NOOP_SPAN).end()

    def failed(self, event: CommandFailedEvent) -> None:
        error = event.failure.get("codeName") or event.failure.get("errtype") or "error"
        self._spans.pop(event.request_id, NOOP_SPAN).end(str(error))
