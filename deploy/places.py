"""Where an operator's command finds the stores: in the folder of a running `up`, or in the environment."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from auth_service.settings import AuditKey
from common.settings import BadSetting, EnvironmentSettings, MongoUrl, RedisUrl, load
from deploy.folder import Addresses, DataFolder


class StoreSettings(EnvironmentSettings):
    """The stores that the environment names, where it names any, the folder of installers, the audit log's key."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    audit_key: AuditKey | None = None
    installers: Path | None = None


@dataclass(frozen=True)
class Places:
    """The stores' addresses, the folder of installers, and the key of the audit log."""

    addresses: Addresses
    installers: Path | None
    audit_key: SecretStr | None


def places(data: Path | None) -> Places:
    """Raises FolderProblem where nothing runs on the folder, BadSetting where the environment says too little."""
    if data is not None:
        folder = DataFolder(data.absolute())
        return Places(folder.addresses(), folder.installers, folder.audit_key)
    stores = load(StoreSettings)
    if stores.mongo_url is None or stores.redis_url is None:
        raise BadSetting("give --data DIR of a running `pkgrepo up`, or set MONGO_URL and REDIS_URL")
    return Places(Addresses("", stores.mongo_url, stores.redis_url), stores.installers, stores.audit_key)
