"""The users of the tests' stores, with the rights of the services."""

import os
from collections.abc import Iterable

from deploy.cluster.rights import Credential

PASSWORD = "a-password-for-tests"


def credentials(users: Iterable[str]) -> list[Credential]:
    return [Credential(user, user, PASSWORD) for user in users]


def same_for_all(url: str, _: str) -> str:
    """The URL of a store without users."""
    return url


def as_user(url: str, user: str) -> str:
    """The URL of a store for one of its users. A RabbitMQ from the environment has only its own user."""
    if url == os.environ.get("TEST_RABBITMQ_URL"):
        return url
    scheme, _, rest = url.partition("://")
    if scheme == "unix":
        return f"{url}?username={user}&password={PASSWORD}"
    address = rest.rpartition("@")[2]
    admin = "" if "authSource" in address or scheme != "mongodb" else "&authSource=admin"
    return f"{scheme}://{user}:{PASSWORD}@{address}{admin}"
