"""Where an operator's command finds the stores: in the folder of a running `up`, or in the environment."""

import os
from dataclasses import dataclass
from pathlib import Path

from common.settings import BadSetting
from deploy.folder import Addresses, DataFolder


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
    mongo_url, redis_url = os.environ.get("MONGO_URL"), os.environ.get("REDIS_URL")
    if not mongo_url or not redis_url:
        raise BadSetting("give --data DIR of a running `pkgrepo up`, or set MONGO_URL and REDIS_URL")
    installers = os.environ.get("INSTALLERS")
    return Places(Addresses("", mongo_url, redis_url), Path(installers) if installers else None)
