"""Damaged installer files and their versions."""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog_service.outgoing.upload_service import UploadService
from catalog_service.versions.model import DamagedFile
from catalog_service.versions.store import MongoVersionStore
from common.auth.callers import Caller


@dataclass(frozen=True)
class DamagedInstaller:
    """A damaged file and its version; `package_id` and `version` are "" if no version has it."""

    file: DamagedFile
    package_id: str = ""
    version: str = ""


class DamagedInstallers:
    """Lists the files that an administrator has to publish again."""

    def __init__(self, versions: MongoVersionStore, installers: UploadService) -> None:
        self._versions = versions
        self._installers = installers

    async def list(self, caller: Caller) -> Sequence[DamagedInstaller]:
        """Return the oldest finding first. Raises Unavailable."""
        files = await self._installers.damaged(caller)
        uids = [file.version_uid for file in files if file.version_uid]
        names = {name.uid: name for name in await self._versions.names_of(caller.tenant_id, uids)} if uids else {}
        return [
            DamagedInstaller(file, name.package_id, name.version)
            if (name := names.get(file.version_uid))
            else DamagedInstaller(file)
            for file in files
        ]
