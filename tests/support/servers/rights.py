"""Attempts to exceed a user's rights at a store, derived from the tables of the rights.

The result are the attempts that the store allowed, so a test expects an empty list. An attempt that fails for another
reason counts as allowed.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel
from aiormq.exceptions import AMQPError, ChannelAccessRefused
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from common.events.broker import DEAD_EXCHANGE, EXCHANGE, LIVE_EXCHANGE
from deploy.cluster.rights import MONGODB, OPERATOR, RABBITMQ, REDIS, Permissions

UNAUTHORIZED = 13  # MongoDB's code
TIMEOUT = 30.0  # seconds for the answer to one attempt
DATABASES = ("admin", "config", "local", *MONGODB[OPERATOR])
USER_MANAGEMENT: tuple[dict[str, Any], ...] = (
    {"createUser": "intruder", "pwd": "a password", "roles": ["root"]},
    {"updateUser": "operator", "pwd": "a password"},
    {"grantRolesToUser": "upload_service", "roles": ["root"]},
    {"dropUser": "operator"},
    {"usersInfo": 1},
    {"createRole": "all", "privileges": [], "roles": ["root"]},
)
SERVER: tuple[dict[str, Any], ...] = (
    {"getLog": "global"},
    {"getParameter": "*"},
    {"setParameter": 1, "logLevel": 0},
    {"serverStatus": 1},
    {"replSetGetConfig": 1},
    {"shutdown": 1},
)
CURRENT_OPERATIONS: dict[str, Any] = {
    "aggregate": 1,
    "pipeline": [{"$currentOp": {"allUsers": True}}],
    "cursor": {},
}

# Redis: a use of each command. `KEY` stands for a key.
ON_KEYS: Mapping[str, tuple[str, ...]] = {
    "get": ("KEY",),
    "set": ("KEY", "1"),
    "del": ("KEY",),
    "unlink": ("KEY",),
    "exists": ("KEY",),
    "expire": ("KEY", "10"),
    "expireat": ("KEY", "1"),
    "persist": ("KEY",),
    "ttl": ("KEY",),
    "incr": ("KEY",),
    "append": ("KEY", "1"),
    "copy": ("KEY", "KEY2"),
    "rename": ("KEY", "KEY2"),
    "dump": ("KEY",),
    "zadd": ("KEY", "1", "1"),
    "zrange": ("KEY", "0", "-1"),
    "zrem": ("KEY", "1"),
    "zremrangebyrank": ("KEY", "0", "0"),
    "zremrangebyscore": ("KEY", "0", "1"),
    "zscore": ("KEY", "1"),
    "eval": ("return 1", "1", "KEY"),
    "evalsha": ("0" * 40, "1", "KEY"),
}
WITHOUT_KEYS: Mapping[str, tuple[str, ...]] = {
    "ping": (),
    "time": (),
    "info": (),
    "scan": ("0",),
    "script|load": ("return 1",),
    "script|flush": (),
    "acl|load": (),
    "acl|list": (),
    "acl|setuser": ("intruder", "on", "nopass", "~*", "+@all"),
    "config|get": ("*",),
    "config|set": ("maxmemory", "1"),
    "client|list": (),
    "client|kill": ("ID", "1000000"),
    "flushall": (),
    "flushdb": (),
    "keys": ("*",),
    "dbsize": (),
    "monitor": (),
    "save": (),
    "bgrewriteaof": (),
    "replicaof": ("no", "one"),
    "module|list": (),
    "function|list": (),
    "slowlog|get": (),
    "swapdb": ("0", "1"),
    "publish": ("channel", "1"),
    "subscribe": ("channel",),
    "shutdown": (),
}

EVERY_USER = [
    (store, user) for store, users in (("mongodb", MONGODB), ("redis", REDIS), ("rabbitmq", RABBITMQ)) for user in users
]
EXCHANGES = (EXCHANGE, DEAD_EXCHANGE, LIVE_EXCHANGE, "foreign")
QUEUES = ("catalog_service", "catalog_service.dead", "foreign")


async def excess_rights(store: str, url: str, user: str) -> list[str]:
    """The attempts that a store allows the user beyond its rights."""
    attempt = {"mongodb": _excess_at_mongodb, "redis": _excess_at_redis, "rabbitmq": _excess_at_rabbitmq}[store]
    return await attempt(url, user)


async def _excess_at_mongodb(url: str, user: str) -> list[str]:
    """The reads and writes in other databases, and the server commands, that MongoDB allows the user."""
    foreign = set(DATABASES) - set(MONGODB[user])
    attempts = [(name, command) for name in foreign for command in _collection_commands(f"foreign_{user}")]
    server = (*USER_MANAGEMENT, *SERVER, *([] if user == OPERATOR else [CURRENT_OPERATIONS]))
    attempts += [("admin", command) for command in server]
    async with AsyncMongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=5000) as client:
        allowed = [f"{name}: {command}" for name, command in attempts if await _is_allowed(client, name, command)]
        return allowed + sorted(set(await client.list_database_names()) & foreign)


def _collection_commands(collection: str) -> list[dict[str, Any]]:
    return [
        {"find": collection},
        {"insert": collection, "documents": [{"_id": 1}]},
        {"update": collection, "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
        {"delete": collection, "deletes": [{"q": {}, "limit": 0}]},
        {"createIndexes": collection, "indexes": [{"key": {"a": 1}, "name": "a"}]},
        {"drop": collection},
        {"listCollections": 1},
        {"dropDatabase": 1},
    ]


async def _is_allowed(client: AsyncMongoClient[dict[str, Any]], database: str, command: dict[str, Any]) -> bool:
    try:
        await client[database].command(command)
    except OperationFailure as error:
        return error.code != UNAUTHORIZED
    return True


async def _excess_at_redis(url: str, user: str) -> list[str]:
    """The commands and uses of keys beyond the table of rights that Redis allows the user."""
    words = REDIS[user].split()
    prefixes = [word[1:].rstrip("*") for word in words if word.startswith("~")]
    commands = {word[1:] for word in words if word.startswith("+")}
    all_prefixes = {
        word[1:].rstrip("*") for rights in REDIS.values() for word in rights.split() if word.startswith("~")
    }
    attempts = [(name, list(arguments)) for name, arguments in WITHOUT_KEYS.items() if name not in commands]
    for name, arguments in ON_KEYS.items():
        for prefix in (*all_prefixes, "other:"):
            if name not in commands or prefix not in prefixes:
                key = f"{prefix}{{rights:test}}"
                attempts.append((name, [word.replace("KEY", key) for word in arguments]))
    client: Any = Redis.from_url(url, socket_timeout=TIMEOUT)
    async with client:
        return [" ".join([name, *words]) for name, words in attempts if await _redis_allows(client, name, words)]


async def _redis_allows(client: Any, name: str, arguments: Sequence[str]) -> bool:
    try:
        await client.execute_command(*name.split("|"), *arguments)
    except NoPermissionError:
        return False
    except RedisError:
        return True
    return True


async def _excess_at_rabbitmq(url: str, user: str) -> list[str]:
    """The uses of exchanges and queues beyond the table of rights that RabbitMQ allows the user."""
    allowed = []
    async with await aio_pika.connect(url, timeout=TIMEOUT) as connection:
        for use, name in _forbidden_uses(RABBITMQ[user]):
            channel = await connection.channel()
            try:
                await use(channel, name)
            except ChannelAccessRefused:
                continue
            except AMQPError:
                pass
            allowed.append(f"{use.__name__} {name}")
    return allowed


async def _declare_exchange(channel: AbstractChannel, name: str) -> None:
    await channel.declare_exchange(name, durable=True)


async def _delete_exchange(channel: AbstractChannel, name: str) -> None:
    await channel.exchange_delete(name)


async def _publish(channel: AbstractChannel, name: str) -> None:
    exchange = await channel.get_exchange(name, ensure=False) if name else channel.default_exchange
    await exchange.publish(aio_pika.Message(b"{}"), "catalog_service", mandatory=False, timeout=TIMEOUT)


async def _declare_queue(channel: AbstractChannel, name: str) -> None:
    await channel.declare_queue(name, durable=True)


async def _delete_queue(channel: AbstractChannel, name: str) -> None:
    await channel.queue_delete(name)


async def _get(channel: AbstractChannel, name: str) -> None:
    await (await channel.get_queue(name, ensure=False)).get(fail=False, timeout=TIMEOUT)


async def _purge(channel: AbstractChannel, name: str) -> None:
    await (await channel.get_queue(name, ensure=False)).purge(timeout=TIMEOUT)


Use = Callable[[AbstractChannel, str], Awaitable[None]]
EXCHANGE_USES: Mapping[str, Sequence[Use]] = {"configure": [_declare_exchange, _delete_exchange], "write": [_publish]}
QUEUE_USES: Mapping[str, Sequence[Use]] = {"configure": [_declare_queue, _delete_queue], "read": [_get, _purge]}


def _forbidden_uses(rights: Permissions) -> list[tuple[Use, str]]:
    uses_of_names = [
        (use, name)
        for uses, names in ((EXCHANGE_USES, EXCHANGES), (QUEUE_USES, QUEUES))
        for right, functions in uses.items()
        for name in names
        if not re.search(getattr(rights, right), name)
        for use in functions
    ]
    return [*uses_of_names, (_publish, "")]  # The default exchange leads to every queue by its name.
