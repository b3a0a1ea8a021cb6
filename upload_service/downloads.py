"""Downloads: a signed address, the file it names, and nothing else."""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from common.downloads import check_download
from common.errors import Forbidden
from common.telemetry import log
from upload_service.installers import FolderInstallers
from upload_service.model import InstallerMissing, InstallerNotFound, Status, Upload
from upload_service.ranges import parse_server_filename

_FILE_NAME = re.compile(r"[A-Za-z0-9._+-]{1,512}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Address:
    """A download address as it came, nothing of it checked."""

    tenant_id: str
    server_filename: str
    file_name: str
    expires: str
    signature: str


class InstallerStore(Protocol):
    """The records as downloads see them."""

    async def find_installer(self, tenant_id: str, server_filename: str) -> Upload | None: ...


class Downloads:
    """Finds the files that addresses name. `key` is what addresses are signed with."""

    def __init__(self, store: InstallerStore, installers: FolderInstallers, key: str) -> None:
        self._store = store
        self._installers = installers
        self._key = key

    async def open(self, address: Address) -> tuple[Upload, Path]:
        """The installer at an address, and where its file is.

        Raises:
            Forbidden: the address was altered, or has expired.
            InstallerNotFound: no version has this file any more.
            InstallerMissing: the file is not on the disk as it should be.
        """
        name = parse_server_filename(address.server_filename)
        if name is None or not _FILE_NAME.fullmatch(address.file_name) or not _SIGNATURE.fullmatch(address.signature):
            raise Forbidden("This download address was altered; ask for a new one.")
        check_download(
            self._key,
            tenant_id=address.tenant_id,
            server_filename=name,
            file_name=address.file_name,
            expires=address.expires,
            signature=address.signature,
            now=time.time(),
        )
        upload = await self._store.find_installer(address.tenant_id, name)
        if upload is None or upload.status is not Status.LINKED:
            raise InstallerNotFound("This installer is not there any more.")
        if await self._installers.size(upload) != upload.size:
            log.error("installer_missing", tenant_id=upload.tenant_id, server_filename=name)
            raise InstallerMissing("The file of this installer is missing.")
        return upload, self._installers.path(upload)
