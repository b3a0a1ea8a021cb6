"""Damaged installers: what upload_service found wrong when it read stored files again, and the versions they are of."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from catalog_service.model.versions import VersionName
from common.auth.callers import Caller


@dataclass(frozen=True)
class DamagedFile:
    """A file of which nothing is served. `version_uid` is "" where nothing claimed it."""

    server_filename: str
    version_uid: str
    damage: str
    found_at: datetime


@dataclass(frozen=True)
class DamagedInstaller:
    """The same with its version; without one, `package_id` and `version` are "": no package version has it."""

    file: DamagedFile
    package_id: str = ""
    version: str = ""


class NamedVersions(Protocol):
    async def names_of(self, tenant_id: str, uids: Sequence[str]) -> Sequence[VersionName]:
        """Those of these that can be seen."""


class Installers(Protocol):
    async def damaged(self, caller: Caller) -> Sequence[DamagedFile]:
        """The tenant's, the one found first at the top."""


class DamagedInstallers:
    """Lists the files that an administrator has to publish again."""

    def __init__(self, versions: NamedVersions, installers: Installers) -> None:
        self._versions = versions
        self._installers = installers

    async def list(self, caller: Caller) -> Sequence[DamagedInstaller]:
        """The one found first at the top. Raises Unavailable where upload_service does not answer."""
        files = await self._installers.damaged(caller)
        uids = [file.version_uid for file in files if file.version_uid]
        names = {name.uid: name for name in await self._versions.names_of(caller.tenant_id, uids)} if uids else {}
        return [
            DamagedInstaller(file, name.package_id, name.version)
            if (name := names.get(file.version_uid))
            else DamagedInstaller(file)
            for file in files
        ]
