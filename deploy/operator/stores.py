"""Where an operator's command finds the stores: in the folder of a running `up`, or in the environment."""

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
    """The stores and the folder of installers that the environment names, and the keys that records are made under."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    audit_key: AuditKey | None = None
    client_token_key: Key | None = None
    installers: Path | None = None


@dataclass(frozen=True)
class StoreAddresses:
    """The stores' addresses, the folder of installers, the keys of the audit log and of client tokens."""

    addresses: Addresses
    installers: Path | None
    audit_key: SecretStr | None
    client_token_key: Keys | None = None

    def require_audit_key(self) -> SecretStr:
        """The keys of the audit log. Raises BadSetting where they are not given."""
        if self.audit_key is None:
            raise BadSetting("AUDIT_KEY: is required here as in auth_service: what operators do is on record")
        return self.audit_key


def places(data: Path | None) -> StoreAddresses:
    """Raises FolderProblem where nothing runs on the folder, BadSetting where the environment says too little."""
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
    """The same of an installation that does not run; the stores of a folder run for as long as the block lasts.

    Raises ServerUnavailable where a `pkgrepo up` runs on the folder, and what `places` raises.
    """
    if data is None:
        yield places(None)
        return
    data.prepare()
    given = load(StoreSettings)
    async with AsyncExitStack() as stack:
        mongo_url, redis_url = given.mongo_url, given.redis_url
        if mongo_url is None:
            mongo_url = await stack.enter_async_context(mongod(data.path / "mongodb"))
        if redis_url is None:
            redis_url = await stack.enter_async_context(redis(data.path / "redis"))
        yield _of_folder(data, Addresses("", mongo_url, redis_url))


def _of_folder(folder: DataFolder, addresses: Addresses) -> StoreAddresses:
    return StoreAddresses(addresses, folder.installers, folder.audit_key, Keys(folder.key("client-token")))
