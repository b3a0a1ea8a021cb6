"""The users that the stores of the tests have, with the rights of the services."""

import os
from collections.abc import Iterable

from deploy.cluster.rights import Credential

PASSWORD = "a-password-for-tests"


def credentials(users: Iterable[str]) -> list[Credential]:
    return [Credential(user, user, PASSWORD) for user in users]


def same_for_all(url: str, _: str) -> str:
    """The address of a store without the users of the services."""
    return url


def as_user(url: str, user: str) -> str:
    """The address of a store for one of its users. A RabbitMQ that the environment names has only its own user."""
    if url == os.environ.get("TEST_RABBITMQ_URL"):
        return url
    scheme, _, place = url.partition("://")
    if scheme == "unix":
        return f"{url}?username={user}&password={PASSWORD}"
    address = place.rpartition("@")[2]
    admin = "" if "authSource" in address or scheme != "mongodb" else "&authSource=admin"
    return f"{scheme}://{user}:{PASSWORD}@{address}{admin}"
