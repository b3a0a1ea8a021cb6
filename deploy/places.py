"""Where an operator's command finds the stores: in the folder of a running `up`, or in the environment."""

from dataclasses import dataclass
from pathlib import Path

from common.settings import BadSetting, EnvironmentSettings, MongoUrl, RedisUrl, load
from deploy.folder import Addresses, DataFolder


class StoreSettings(EnvironmentSettings):
    """The stores that the environment names, where it names any, and the folder of installers."""

    mongo_url: MongoUrl = ""
    redis_url: RedisUrl = ""
    installers: Path | None = None


@dataclass(frozen=True)
class Places:
    """The stores' addresses and the folder of installers."""

    addresses: Addresses
    installers: Path | None


def places(data: Path | None) -> Places:
    """Raises FolderProblem where nothing runs on the folder, BadSetting where the environment says too little."""
    if data is not None:
        folder = DataFolder(data.absolute())
        return Places(folder.addresses(), folder.installers)
    stores = load(StoreSettings)
    if not stores.mongo_url or not stores.redis_url:
        raise BadSetting("give --data DIR of a running `pkgrepo up`, or set MONGO_URL and REDIS_URL")
    return Places(Addresses("", stores.mongo_url, stores.redis_url), stores.installers)
