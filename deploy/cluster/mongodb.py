"""A MongoDB that knows nobody yet gets its replica set and its user."""

from urllib.parse import quote

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from deploy.local import form_replica_set

UNAUTHORIZED = frozenset([13, 18])  # MongoDB's answers to a user who may not, and to one who is not known


async def prepare(address: str, member: str, user: str, password: str) -> None:
    """Make the server at `address` (`host:port`) a replica set of itself, known to others as `member`, with this user.

    To be run on the server's own host: there it lets somebody in as long as it has no user. Done again it changes
    nothing.
    """
    known = f"mongodb://{user}:{quote(password, safe='')}@{address}/?directConnection=true&authSource=admin"
    try:
        await form_replica_set(known, member)
    except OperationFailure as error:
        if error.code not in UNAUTHORIZED:
            raise
        await _first(address, member, user, password)


async def _first(address: str, member: str, user: str, password: str) -> None:
    """What only the first to come may do."""
    anyone = f"mongodb://{address}/?directConnection=true"
    await form_replica_set(anyone, member)
    async with AsyncMongoClient[dict[str, object]](anyone) as client:
        await client.admin.command("createUser", user, pwd=password, roles=["root"])
