"""The stores of `compose.yaml`, and the rights of each user at them. A service has access to its own data only.

The stores of `compose.yaml` are set up with these tables, and the Kubernetes guide prints them for other stores.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from common.settings import EnvironmentSettings, MongoUrl, RabbitUrl, RedisUrl
from deploy.local.servers import form_replica_set

OPERATOR = "operator"  # the user of the `pkgrepo` commands
HEALTH = "health"  # the user of Redis' health check
ADMINISTRATOR = "administrator"  # the user that reloads the users of Redis

# The databases that each user reads and writes.
MONGODB: Mapping[str, Sequence[str]] = {
    "auth_service": ["auth"],
    "catalog_service": ["catalog"],
    "upload_service": ["upload"],
    "client_registry": ["clients"],
    OPERATOR: ["auth", "catalog", "upload", "clients"],
}
# A role of the operator: `restore` and `import` check whether a service is connected to the databases.
CONNECTIONS_ROLE = "pkgrepoConnections"
CONNECTIONS_PRIVILEGES = [{"resource": {"cluster": True}, "actions": ["inprog"]}]

_SCRIPTS = "+evalsha +eval +script|load"
# The keys and the commands of each user, in the syntax of `ACL SETUSER` of Redis 6.2 and newer.
REDIS: Mapping[str, str] = {
    "gateway": f"~session:* ~stamp:* +ping {_SCRIPTS} +time +info +get +expire +del +exists",
    "auth_service": (
        f"~session:* ~sessions:* ~failures:* ~stamp:* +ping {_SCRIPTS} +time +get +set +exists +expire +expireat +ttl"
        " +del +incr +scan +zadd +zrange +zrem +zremrangebyrank +zremrangebyscore +zscore"
    ),
    "catalog_service": "~stamp:* +ping +set",
    "client_registry": f"~enrolled:* ~stamp:* +ping {_SCRIPTS} +get +set +expire +ttl +incr",
    OPERATOR: f"~session:* ~sessions:* ~failures:* ~stamp:* +ping {_SCRIPTS} +set +del +scan +zrange +zrem",
    HEALTH: "+ping",
    ADMINISTRATOR: "+acl|load",
}
DEFAULT_USER = "user default reset ~* &* +@all"  # off and without a password
UNAUTHORIZED = frozenset([13, 18])  # MongoDB's codes for a user without the right, and for an unknown user
ROOT = "pkgrepo"  # creates the other users; no service has its password


@dataclass(frozen=True)
class Permissions:
    """Regular expressions of the exchanges and queues that a RabbitMQ user may configure, write and read."""

    configure: str = "^$"
    write: str = "^$"
    read: str = "^$"


RABBITMQ: Mapping[str, Permissions] = {
    "upload_service": Permissions(configure=r"^uploads(\.live)?$", write=r"^uploads(\.live)?$"),
    "catalog_service": Permissions(
        configure=r"^(uploads|uploads\.dead|catalog_service|catalog_service\.dead)$",
        write=r"^(uploads\.dead|catalog_service|catalog_service\.dead)$",
        read=r"^(uploads|uploads\.dead|catalog_service)$",
    ),
    "gateway": Permissions(
        configure=r"^(uploads\.live|amq\.gen-.+)$", write=r"^amq\.gen-.+$", read=r"^(uploads\.live|amq\.gen-.+)$"
    ),
}


@dataclass(frozen=True)
class Credential:
    """A name and a password at a store. `user` is the row of the tables above whose rights the name has."""

    user: str
    name: str
    password: str

    def __str__(self) -> str:
        return f"{self.name}:{self.password}"


def names_of(user: str) -> tuple[str, str]:
    """The two names of a user. A new password comes with the other name, so both work for a while."""
    return user, f"{user}-2"


def mongodb_roles(user: str) -> list[Mapping[str, str]]:
    """The roles of a MongoDB user, as `createUser` takes them."""
    connections = [{"role": CONNECTIONS_ROLE, "db": "admin"}] if user == OPERATOR else []
    return [*({"role": "readWrite", "db": database} for database in MONGODB[user]), *connections]


def redis_acl(credentials: Sequence[Credential]) -> str:
    """Redis' file of users. Passwords are hashed.

    Nobody can sign in as `default`. It has every right, because Redis replays its append-only file with the rights of
    `default`: without them, a restart would lose what scripts wrote, such as all sessions.
    """
    lines = [DEFAULT_USER]
    for credential in credentials:
        digest = hashlib.sha256(credential.password.encode()).hexdigest()
        lines.append(f"user {credential.name} on #{digest} resetchannels {REDIS[credential.user]}")
    return "\n".join([*lines, ""])


def rabbitmq_definitions(credentials: Sequence[Credential]) -> str:
    """RabbitMQ's file of definitions. A name that is not among the credentials cannot sign in and has no rights."""
    active = {credential.name: credential for credential in credentials}
    names = [name for user in RABBITMQ for name in names_of(user)]
    users, permissions = [], []
    for name in names:
        credential = active.get(name)
        password = _rabbitmq_hash(credential) if credential else ""
        hashed = {"password_hash": password, "hashing_algorithm": "rabbit_password_hashing_sha256"}
        users.append({"name": name, **hashed, "tags": ""})
        rights = RABBITMQ[credential.user] if credential else Permissions()
        permissions.append({"user": name, "vhost": "/", **vars(rights)})
    return json.dumps({"vhosts": [{"name": "/"}], "users": users, "permissions": permissions}, indent=1)


def _rabbitmq_hash(credential: Credential) -> str:
    # The salt follows from the credential, so the same credentials give the same file. Passwords are random.
    salt = hashlib.sha256(str(credential).encode()).digest()[:4]
    return b64encode(salt + hashlib.sha256(salt + credential.password.encode()).digest()).decode()


@dataclass(frozen=True)
class Store:
    """A store of `compose.yaml`. `url` is its address with `{}` in place of `name:password`.

    `user_files` has the names of the files that the store reads its users from, and makers of their text.
    """

    folder: str
    setting: str
    url: str
    users: Iterable[str]
    user_files: Mapping[str, Callable[[Sequence[Credential]], str]] = field(default_factory=dict)

    def has_address(self, url: str) -> bool:
        """Whether an address is the one of this store, and not of an external one."""
        scheme, _, server = self.url.partition("{}")
        return url.startswith(scheme) and url.endswith(server)


STORES = (
    Store("mongodb", "mongo_url", "mongodb://{}@mongodb:27017/?replicaSet=rs0&authSource=admin", MONGODB),
    Store("redis", "redis_url", "redis://{}@redis:6379", REDIS, {"users.acl": redis_acl}),
    Store("rabbitmq", "rabbitmq_url", "amqp://{}@rabbitmq:5672/", RABBITMQ, {"definitions.json": rabbitmq_definitions}),
)


class OtherStores(EnvironmentSettings):
    """The addresses of external stores, with their users and passwords."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    rabbitmq_url: RabbitUrl | None = None


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
