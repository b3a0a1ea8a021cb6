"""Downloads: a signed address, the file it names, and nothing else."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from common.auth.downloads import check_download
from common.auth.signing import Keys
from common.errors import Forbidden
from common.telemetry import log
from upload_service.content_range import parse_server_filename
from upload_service.model import (
    Damage,
    InstallerDamaged,
    InstallerMissing,
    InstallerNotFound,
    Status,
    StorageKind,
    Upload,
)
from upload_service.storage.filesystem import FolderStorage, StorageBackends, prepend

_FILE_NAME = re.compile(r"[A-Za-z0-9._+-]{1,512}")


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


class Signer(Protocol):
    """A home that gives its files to whoever has a signed address of it."""

    async def sign_url(self, upload: Upload, method: str) -> str: ...


@dataclass(frozen=True)
class OpenFile:
    """A file that was seen to be there whole, and `length` of its bytes from `start` on.

    `content` is the file to take them from, or gives them; the first of them is here already.
    """

    upload: Upload
    start: int
    length: int
    content: BinaryIO | AsyncIterator[bytes]


class Downloads:
    """Finds the files that addresses name. `keys` are what addresses are signed with.

    With a `signer` downloads of what is in the object storage are sent there.
    """

    def __init__(
        self,
        store: InstallerStore,
        homes: StorageBackends,
        folder: FolderStorage,
        keys: Keys,
        *,
        signer: Signer | None = None,
    ) -> None:
        self._store = store
        self._homes = homes
        self._folder = folder
        self._keys = keys
        self._signer = signer

    async def find(self, address: Address) -> Upload:
        """The installer at an address.

        Raises:
            Forbidden: the address was altered, or has expired.
            InstallerNotFound: no version has this file any more.
            InstallerMissing: the file was lost.
            InstallerDamaged: the file is not what was uploaded.
        """
        name = parse_server_filename(address.server_filename)
        if name is None or not _FILE_NAME.fullmatch(address.file_name):
            raise Forbidden("This download address was altered; ask for a new one.")
        check_download(
            self._keys,
            tenant_id=address.tenant_id,
            server_filename=name,
            file_name=address.file_name,
            expires=address.expires,
            signature=address.signature,
            now=time.time(),
        )
        return await self._find(address.tenant_id, name)

    @asynccontextmanager
    async def open(self, upload: Upload, start: int, length: int) -> AsyncIterator[OpenFile]:
        """So many bytes of an installer from `start` on; none where only the file's presence matters.

        Raises as `find` does, and Unavailable where the storage of the file does not answer.
        """
        async with AsyncExitStack() as stack:
            try:
                opened = await self._open(stack, upload, start, length)
            except InstallerMissing:
                # It may have moved since its record was read.
                upload = await self._find(upload.tenant_id, upload.server_filename)
                try:
                    opened = await self._open(stack, upload, start, length)
                except InstallerMissing:
                    log.error("installer_missing", tenant_id=upload.tenant_id, server_filename=upload.server_filename)
                    raise
            yield opened

    async def redirect_address(self, upload: Upload, method: str) -> str | None:
        """The address that a download with this method is sent to, where it is not served here.

        Raises as `open` does.
        """
        if self._signer is None or upload.storage is not StorageKind.S3:
            return None
        async with self.open(upload, 0, 0) as opened:
            moved = opened.upload.storage is not StorageKind.S3
            return None if moved else await self._signer.sign_url(opened.upload, method)

    async def _find(self, tenant_id: str, name: str) -> Upload:
        upload = await self._store.find_installer(tenant_id, name)
        if upload is None or upload.status is not Status.LINKED:
            raise InstallerNotFound("This installer is not there any more.")
        if upload.damage is Damage.MISSING:
            raise InstallerMissing("The file of this installer is missing.")
        if upload.damage is Damage.ALTERED:
            raise InstallerDamaged("The file of this installer is damaged; upload it again.")
        return upload

    async def _open(self, stack: AsyncExitStack, upload: Upload, start: int, length: int) -> OpenFile:
        home = self._homes.of(upload)
        if await home.size(upload) != upload.size:
            raise InstallerMissing("The file of this installer is missing.")
        if upload.storage is StorageKind.FOLDER:
            file = stack.enter_context(await asyncio.to_thread(_open_file, self._folder.path(upload)))
            return OpenFile(upload, start, length, file)
        blocks = await stack.enter_async_context(aclosing(home.read(upload, start, length)))
        first = await anext(blocks, b"")
        return OpenFile(upload, start, length, prepend(first, blocks))


def _open_file(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise InstallerMissing("The file of this installer is missing.") from None
