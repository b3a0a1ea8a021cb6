"""Complete installers in S3-compatible object storage, each under `<prefix>/<tenant_id>/<server_filename>`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from common.errors import Unavailable
from common.telemetry import log
from common.tenants import is_tenant_id
from upload_service.content_range import parse_server_filename, plain_name
from upload_service.model import InstallerMissing, StorageKind, Upload
from upload_service.settings import ObjectStorage
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends, StoredFile
from upload_service.storage.s3_client import answering, is_not_implemented, open_store

if TYPE_CHECKING:  # The library has it for the checker only.
    from obstore import Attributes

PART = 5 << 20  # bytes, the least that S3 takes; a file up to here is put at once, a larger one in parts
AT_ONCE = 3  # parts on their way; the library holds twice as much
MOST_PARTS = 10_000  # of one object, by the rules of S3
BLOCK = 1 << 20  # bytes
TIMEOUT = 2.5  # seconds for a question with a caller behind it
BLOCK_TIMEOUT = 25.0  # seconds until the next bytes of a file
REDIRECT_LIFETIME = timedelta(minutes=5)  # in which a redirected download must begin

# What a browser is told that a download is sent to: to save the file, whatever is in it.
_HEADERS: "Attributes" = {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment"}


class S3Storage:
    """Satisfies `upload_service.storage.filesystem.InstallerStorage`.

    An object is there whole or not at all, so one that is there was put whole. A file up to 5 MiB is created on the
    condition that there is none of its name. S3 has no such condition for a file in parts, and some providers have
    none at all: the name is looked for before, and two that put it at the same moment replace each other's object,
    with the same bytes, for a name is given to one file only. What a putting that was cut short has sent stays hidden
    in the bucket until a rule of the bucket removes incomplete multipart uploads; it can never be read.
    """

    def __init__(self, storage: ObjectStorage) -> None:
        self._store = open_store(storage)
        self._has_conditions = True

    async def put(self, upload: Upload, source: Path) -> None:
        """Put a file; nothing where there is one of its name. Raises InstallerMissing and Unavailable."""
        try:
            await self._put(upload, source)
        except FileNotFoundError:
            if await self.size(upload) is None:
                raise InstallerMissing("The file of this installer is missing.") from None

    async def size(self, upload: Upload) -> int | None:
        """The bytes of the object, None where there is none. Raises Unavailable."""
        try:
            with answering("size"):
                async with asyncio.timeout(TIMEOUT):
                    return (await self._store.head_async(_key(upload)))["size"]
        except FileNotFoundError:
            pass
        # A HEAD is answered alike where the whole bucket is not there; only the body of a GET's answer tells.
        try:
            with answering("size"):
                async with asyncio.timeout(TIMEOUT):
                    return (await self._store.get_async(_key(upload))).meta["size"]
        except FileNotFoundError:
            return None

    async def read(self, upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` on, in blocks of at most 1 MiB; taken up again where the storage breaks off.

        Raises:
            InstallerMissing: there is no such object, or it ends before.
            Unavailable: the storage does not answer, or not any more.
        """
        position, end = start, start + length
        while position < end:
            begun = position
            try:
                async for block in self._blocks(upload, position, end):
                    position += len(block)
                    yield block
            except FileNotFoundError:
                raise InstallerMissing("The file of this installer is missing.") from None
            except Unavailable:
                if position == begun:
                    raise
            else:
                if position < end:
                    raise InstallerMissing("The file of this installer is shorter than it was.")

    async def remove(self, upload: Upload) -> None:
        """Remove the object; that it is gone already is fine. Raises Unavailable."""
        if not upload.server_filename:  # It never was complete.
            return
        with answering("remove", missing_is_fine=True):
            async with asyncio.timeout(TIMEOUT):
                await self._store.delete_async(_key(upload))

    async def list_files(self) -> AsyncIterator[StoredFile]:
        """Every installer; its age is from the storage's clock to ours. What this service did not name is left out."""
        async for path, last_modified in self._objects(None):
            tenant_id, _, name = path.rpartition("/")
            if parse_server_filename(name) and is_tenant_id(tenant_id):
                yield StoredFile(tenant_id, name, (datetime.now(UTC) - last_modified).total_seconds())

    async def remove_tenant(self, tenant_id: str) -> None:
        """Remove every installer of a tenant. Raises ValueError for an id that no tenant can have, and Unavailable."""
        if not is_tenant_id(tenant_id):
            raise ValueError("not a tenant's id")
        async for path, _ in self._objects(tenant_id):
            if parse_server_filename(path.removeprefix(f"{tenant_id}/")):
                with answering("remove", missing_is_fine=True):
                    await self._store.delete_async(path)

    async def sign_url(self, upload: Upload, method: str) -> str:
        """An address that gives the object to anyone who uses `method` (GET or HEAD) within five minutes."""
        with answering("sign"):
            async with asyncio.timeout(TIMEOUT):
                signed: Literal["HEAD", "GET"] = "HEAD" if method == "HEAD" else "GET"
                return await obstore.sign_async(self._store, signed, _key(upload), REDIRECT_LIFETIME)

    async def _put(self, upload: Upload, source: Path) -> None:
        """Put a file, where there is none of its name. Raises FileNotFoundError where the source is gone."""
        size = (await asyncio.to_thread(source.stat)).st_size
        if size <= PART:
            await self._create(upload, await asyncio.to_thread(source.read_bytes))
        elif await self.size(upload) is None:
            part = max(PART, -(-size // MOST_PARTS))
            at_once = max(1, AT_ONCE * PART // part)
            with answering("put"):
                await self._store.put_async(
                    _key(upload), source, attributes=_HEADERS, chunk_size=part, max_concurrency=at_once
                )

    async def _create(self, upload: Upload, content: bytes) -> None:
        """Put a small file on the condition that there is none of its name, or look for one before."""
        if self._has_conditions:
            with answering("put"):
                try:
                    await self._store.put_async(_key(upload), content, attributes=_HEADERS, mode="create")
                except AlreadyExistsError:
                    return
                except BaseError as error:
                    if not is_not_implemented(error):  # Not every provider has the condition.
                        raise
                else:
                    return
        if await self.size(upload) is None:
            with answering("put"):
                await self._store.put_async(_key(upload), content, attributes=_HEADERS)
        if self._has_conditions:
            log.warning("object_storage_without_conditions")
            self._has_conditions = False

    async def _blocks(self, upload: Upload, start: int, end: int) -> AsyncIterator[bytes]:
        with answering("read"):
            async with asyncio.timeout(BLOCK_TIMEOUT):
                found = await self._store.get_async(_key(upload), options={"range": (start, end)})
            stream = found.stream(min_chunk_size=BLOCK // 2)
        while True:
            with answering("read"):
                async with asyncio.timeout(BLOCK_TIMEOUT):
                    chunk = await anext(stream, None)
            if chunk is None:
                return
            for at in range(0, len(chunk), BLOCK):
                yield bytes(chunk[at : at + BLOCK])

    async def _objects(self, prefix: str | None) -> AsyncIterator[tuple[str, datetime]]:
        pages = aiter(self._store.list(prefix, chunk_size=1000))
        while True:
            with answering("list"):
                async with asyncio.timeout(BLOCK_TIMEOUT):
                    page = await anext(pages, None)
            if page is None:
                return
            for found in page:
                yield found["path"], found["last_modified"]


def storage_backends(folder: FolderStorage, objects: S3Storage | None) -> StorageBackends:
    """The homes there are."""
    homes: dict[StorageKind, InstallerStorage] = {StorageKind.FOLDER: folder}
    return StorageBackends(homes if objects is None else {**homes, StorageKind.S3: objects})


def _key(upload: Upload) -> str:
    return f"{plain_name(upload.tenant_id)}/{plain_name(upload.server_filename)}"
