"""Downloads: a signed address, the file it names, and the count of its complete downloads."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import BinaryIO

from prometheus_client import Counter

from common.auth.downloads import check_download
from common.auth.signing import Keys
from common.errors import Forbidden
from common.http.zero_copy.responses import DetachedBody
from common.mongo import MongoError
from common.telemetry import log
from upload_service.downloads.store import Download, MongoDownloadStore
from upload_service.model import (
    Damage,
    InstallerDamaged,
    InstallerInfected,
    InstallerMissing,
    InstallerNotFound,
    InstallerWithheld,
    Status,
    StorageKind,
    Upload,
    parse_server_filename,
)
from upload_service.outgoing.object_bodies import open_object
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends, open_file, prepend
from upload_service.storage.s3 import S3Storage
from upload_service.uploads.store import MongoUploadStore

MIN_SPLICED = 1 << 20  # bytes; a smaller body is read on a connection that is kept

_FILE_NAME = re.compile(r"[A-Za-z0-9._+-]{1,512}")
BATCH = 1000  # downloads of one write
MAX_WAITING = 100_000  # downloads, while the database does not answer


@dataclass(frozen=True)
class Address:
    """A download address as it was received, not validated."""

    tenant_id: str
    server_filename: str
    file_name: str
    expires: str
    signature: str


@dataclass(frozen=True)
class ObjectBody:
    """The body of an object on its connection. `read` reads on from a position if the connection breaks off."""

    body: DetachedBody
    read: Callable[[int], AsyncGenerator[bytes, None]]


@dataclass(frozen=True)
class OpenFile:
    """`length` bytes from `start` on of a file that is complete.

    `content` is the file, an iterator over these bytes whose first block was received, or a body that is not read.
    """

    upload: Upload
    start: int
    length: int
    content: BinaryIO | AsyncIterator[bytes] | ObjectBody


@dataclass(frozen=True)
class Downloads:
    """Finds and opens the files that addresses name.

    Addresses are signed with `keys`. With `redirects`, downloads of files in that object storage are redirected to it.
    """

    store: MongoUploadStore
    backends: StorageBackends
    folder: FolderStorage
    keys: Keys
    redirects: S3Storage | None = None

    async def find(self, address: Address) -> Upload:
        """The installer at an address.

        Raises:
            Forbidden: the address was altered or has expired.
            InstallerNotFound: no version has this file.
            InstallerWithheld: its version is held.
            InstallerInfected: the scanner found malware in it.
            InstallerMissing: the file was lost.
            InstallerDamaged: the file is not what was uploaded, or cannot be read.
        """
        name = parse_server_filename(address.server_filename)
        if name is None or not _FILE_NAME.fullmatch(address.file_name):
            raise Forbidden("This download address was altered; ask for a new one.")
        check_download(self.keys, **asdict(address), now=time.time())
        return await self._find(address.tenant_id, name)

    @asynccontextmanager
    async def open(self, upload: Upload, start: int, length: int) -> AsyncIterator[OpenFile]:
        """Bytes of an installer; a `length` of 0 only checks that the file exists.

        Raises as `find` does, and Unavailable if the storage does not respond.
        """
        async with AsyncExitStack() as stack:
            try:
                file = await self._open(stack, upload, start, length)
            except InstallerMissing:
                # It may have moved since its record was read.
                upload = await self._find(upload.tenant_id, upload.server_filename)
                try:
                    file = await self._open(stack, upload, start, length)
                except InstallerMissing:
                    log.error("installer_missing", **upload.log_fields)
                    raise
            yield file

    async def redirect_address(self, upload: Upload, method: str) -> str | None:
        """The URL to redirect a download with this method to; None if it is served here. Raises as `open` does."""
        if self.redirects is None or upload.storage is not StorageKind.S3:
            return None
        async with self.open(upload, 0, 0) as file:
            if file.upload.storage is not StorageKind.S3:  # It has moved.
                return None
            return await self.redirects.sign_url(file.upload, method)

    async def _find(self, tenant_id: str, name: str) -> Upload:
        upload = await self.store.find_installer(tenant_id, name)
        if upload is None or upload.status is not Status.LINKED:
            raise InstallerNotFound("This installer is not there any more.")
        if upload.is_withheld:
            raise InstallerWithheld
        if upload.is_infected:
            raise InstallerInfected
        if upload.damage is Damage.MISSING:
            raise InstallerMissing
        if upload.damage:
            raise InstallerDamaged
        return upload

    async def _open(self, stack: AsyncExitStack, upload: Upload, start: int, length: int) -> OpenFile:
        storage = self.backends.of(upload)
        if await storage.size(upload) != upload.size:
            raise InstallerMissing
        if upload.storage is StorageKind.FOLDER:
            file = stack.enter_context(await open_file(self.folder.path(upload)))
            return OpenFile(upload, start, length, file)
        if isinstance(storage, S3Storage) and length >= MIN_SPLICED:
            url = await storage.sign_url(upload, "GET")
            if body := await stack.enter_async_context(open_object(url, start, length)):
                read = partial(_read_on, storage, upload, start + length)
                return OpenFile(upload, start, length, ObjectBody(body, read))
        blocks = await stack.enter_async_context(aclosing(storage.read(upload, start, length)))
        first = await anext(blocks, b"")
        return OpenFile(upload, start, length, prepend(first, blocks))


def _read_on(storage: InstallerStorage, upload: Upload, end: int, position: int) -> AsyncGenerator[bytes, None]:
    return storage.read(upload, position, end - position)


class DownloadCounter:
    """Collects downloads in memory until `flush` writes them. A process that dies loses those of the last seconds."""

    def __init__(self, store: MongoDownloadStore, metric: Counter) -> None:
        """`metric` has the label of the tenant."""
        self._store = store
        self._metric = metric
        self._waiting: dict[Download, None] = {}  # in their order
        self._lock = asyncio.Lock()
        self.since: datetime | None = None  # the time since which every download is counted, if it is known

    async def begin(self) -> None:
        """Record that downloads are counted."""
        self.since = await self._store.begin_counting()

    def count(self, upload: Upload, client: str) -> None:
        """Count a complete download of a file by a client."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting[Download(upload.tenant_id, upload.version_uid, client, current_hour())] = None

    async def flush(self) -> None:
        """Write all downloads that wait. After an error of the database, those without a mark wait on."""
        # A cancelled write could have marked downloads that it did not count.
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            while batch := list(islice(self._waiting, BATCH)):
                unmarked = await self._store.mark(batch)
                for download in batch:
                    self._waiting.pop(download, None)
                await self._add(unmarked)

    async def _add(self, downloads: list[Download]) -> None:
        try:
            await self._store.add(downloads)
        except MongoError:
            # Adding again could count twice, because the database may have counted before it failed.
            log.warning("downloads_not_counted", downloads=len(downloads))
            raise
        for download in downloads:
            self._metric.labels(download.tenant_id).inc()


def current_hour() -> datetime:
    """The begin of this hour in UTC."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
