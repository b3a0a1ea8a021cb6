"""Damaged installer files and their versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from catalog_service.model.versions import VersionName
from common.auth.callers import Caller


@dataclass(frozen=True)
class DamagedFile:
    """A file that is not served any more. `version_uid` is "" for an unclaimed file."""

    server_filename: str
    version_uid: str
    damage: str
    found_at: datetime


@dataclass(frozen=True)
class DamagedInstaller:
    """A damaged file and its version; `package_id` and `version` are "" if no version has it."""

    file: DamagedFile
    package_id: str = ""
    version: str = ""


class NamedVersions(Protocol):
    async def names_of(self, tenant_id: str, uids: Sequence[str]) -> Sequence[VersionName]:
        """Return the names of active versions."""


class Installers(Protocol):
    async def damaged(self, caller: Caller) -> Sequence[DamagedFile]:
        """Return the tenant's damaged files, the oldest finding first."""


class DamagedInstallers:
    """Lists the files that an administrator has to publish again."""

    def __init__(self, versions: NamedVersions, installers: Installers) -> None:
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
