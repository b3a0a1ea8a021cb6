"""The addresses of the stores for operators' commands: from the folder of a running `up`, or the environment."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from auth_service.settings import AuditKey
from common.auth.signing import Keys
from common.settings import BadSetting, EnvironmentSettings, Key, MongoUrl, RedisUrl, load
from deploy.local.folder import Addresses, DataFolder
from deploy.local.servers import mongod, redis


class StoreSettings(EnvironmentSettings):
    """The stores, the folder of installers and the keys that the environment names."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    audit_key: AuditKey | None = None
    client_token_key: Key | None = None
    installers: Path | None = None


@dataclass(frozen=True)
class StoreAddresses:
    """The addresses of the stores, the folder of installers, and the keys of the audit log and of client tokens."""

    addresses: Addresses
    installers: Path | None
    audit_key: SecretStr | None
    client_token_key: Keys | None = None

    def require_audit_key(self) -> SecretStr:
        """The keys of the audit log. Raises BadSetting without them."""
        if self.audit_key is None:
            raise BadSetting(
                "AUDIT_KEY: is missing; set it as for auth_service, to record this command in the audit log"
            )
        return self.audit_key


def store_addresses(data: Path | None) -> StoreAddresses:
    """The running stores. Raises FolderProblem if nothing runs on the folder, and BadSetting."""
    if data is not None:
        folder = DataFolder(data.absolute())
        return _of_folder(folder, folder.addresses())
    stores = load(StoreSettings)
    if stores.mongo_url is None or stores.redis_url is None:
        raise BadSetting("give --data DIR of a running `pkgrepo up`, or set MONGO_URL and REDIS_URL")
    addresses = Addresses("", stores.mongo_url, stores.redis_url)
    return StoreAddresses(addresses, stores.installers, stores.audit_key, stores.client_token_key)


@asynccontextmanager
async def offline_stores(data: DataFolder | None) -> AsyncIterator[StoreAddresses]:
    """The stores of an installation that does not run. The stores of a data folder run during the block.

    Raises ServerUnavailable if a `pkgrepo up` runs on the folder, and as `store_addresses` does.
    """
    if data is None:
        yield store_addresses(None)
        return
    data.prepare()
    async with local_stores(data) as (mongo_url, redis_url):
        yield _of_folder(data, Addresses("", mongo_url, redis_url))


@asynccontextmanager
async def local_stores(folder: DataFolder) -> AsyncIterator[tuple[str, str]]:
    """The URLs of MongoDB and Redis: of the settings, else of servers for the block. Raises as `offline_stores`."""
    settings = load(StoreSettings)
    async with AsyncExitStack() as stack:
        mongo_url, redis_url = settings.mongo_url, settings.redis_url
        if mongo_url is None:
            mongo_url = await stack.enter_async_context(mongod(folder.path / "mongodb"))
        if redis_url is None:
            redis_url = await stack.enter_async_context(redis(folder.path / "redis"))
        yield mongo_url, redis_url


def _of_folder(folder: DataFolder, addresses: Addresses) -> StoreAddresses:
    return StoreAddresses(addresses, folder.installers, folder.audit_key, Keys(folder.key("client-token")))
