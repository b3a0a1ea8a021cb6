"""The stores of `compose.yaml`, and the addresses of external stores."""

from collections.abc import Iterable
from dataclasses import dataclass

from common.settings import EnvironmentSettings, MongoUrl, RabbitUrl, RedisUrl
from deploy.cluster.rights import MONGODB, RABBITMQ, REDIS


@dataclass(frozen=True)
class Store:
    """A store of `compose.yaml`. `url` is its address with `{}` in place of `name:password`."""

    folder: str
    setting: str
    url: str
    users: Iterable[str]

    def has_address(self, url: str) -> bool:
        """Whether an address is the one of this store, and not of an external one."""
        scheme, _, server = self.url.partition("{}")
        return url.startswith(scheme) and url.endswith(server)


STORES = (
    Store("mongodb", "mongo_url", "mongodb://{}@mongodb:27017/?replicaSet=rs0&authSource=admin", MONGODB),
    Store("redis", "redis_url", "redis://{}@redis:6379", REDIS),
    Store("rabbitmq", "rabbitmq_url", "amqp://{}@rabbitmq:5672/", RABBITMQ),
)
# Files of release 0.1.0, which had one user at each store.
OUTDATED = ("redis/password", "redis/password.conf", "rabbitmq/password", "rabbitmq/user.conf")


class OtherStores(EnvironmentSettings):
    """The addresses of external stores, with their users and passwords."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    rabbitmq_url: RabbitUrl | None = None
