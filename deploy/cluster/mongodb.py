"""MongoDB of a deployment in containers: its replica set, root, and a user for each service."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from deploy.cluster.rights import CONNECTIONS_PRIVILEGES, CONNECTIONS_ROLE, MONGODB, Credential, mongodb_roles, names_of
from deploy.local.servers import form_replica_set

UNAUTHORIZED = frozenset([13, 18])  # MongoDB's codes for a user without the right, and for an unknown user
ROOT = "pkgrepo"  # creates the other users; no service has its password


async def prepare(address: str, member: str, passwords: Sequence[str], credentials: Sequence[Credential]) -> None:
    """Create a replica set of the one server at `address` (`host:port`), and create or update its users.

    Run it on the server's own host, where a server without users accepts the first one. `member` is the `host:port`
    that the services use. The first of `passwords` becomes root's, the others are earlier passwords of root.
    Re-running is safe.
    """
    for password in passwords:
        url = _root_url(address, password)
        try:
            await form_replica_set(url, member)
        except OperationFailure as error:
            if error.code not in UNAUTHORIZED:
                raise
        else:
            await _write_root(url, "updateUser", pwd=passwords[0])
            break
    else:
        url = f"mongodb://{address}/?directConnection=true"
        await form_replica_set(url, member)
        await _write_root(url, "createUser", pwd=passwords[0], roles=["root"])
    await update_users(_root_url(address, passwords[0]), credentials)


def _root_url(address: str, password: str) -> str:
    return f"mongodb://{ROOT}:{quote(password, safe='')}@{address}/?directConnection=true&authSource=admin"


async def _write_root(url: str, command: str, **options: Any) -> None:
    async with AsyncMongoClient[dict[str, object]](url) as client:
        await client.admin.command(command, ROOT, **options)


async def update_users(url: str, credentials: Sequence[Credential]) -> None:
    """Create these users, or set their passwords and roles; drop their other names. `url` may manage users."""
    async with AsyncMongoClient[dict[str, object]](url) as client:
        admin = client.admin
        roles = (await admin.command("rolesInfo", CONNECTIONS_ROLE))["roles"]
        command = "updateRole" if roles else "createRole"
        await admin.command(command, CONNECTIONS_ROLE, privileges=CONNECTIONS_PRIVILEGES, roles=[])
        known = {user["user"] for user in (await admin.command("usersInfo"))["users"]}
        for credential in credentials:
            command = "updateUser" if credential.name in known else "createUser"
            await admin.command(command, credential.name, pwd=credential.password, roles=mongodb_roles(credential.user))
        names = {name for user in MONGODB for name in names_of(user)}
        for name in (names & known) - {credential.name for credential in credentials}:
            await admin.command("dropUser", name)
