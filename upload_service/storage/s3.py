"""Complete installers in S3-compatible object storage, each under `<prefix>/<tenant_id>/<server_filename>`."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from common.errors import Unavailable
from common.telemetry import log
from common.tenants import is_tenant_id
from upload_service.model import InstallerMissing, StorageKind, Upload, parse_server_filename, plain_name
from upload_service.settings import ObjectStorage
from upload_service.storage.filesystem import FolderStorage, InstallerStorage, StorageBackends, StoredFile

if TYPE_CHECKING:  # The library has these for type checkers only.
    from obstore import Attributes
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

CLIENT: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=2),
    "read_timeout": timedelta(seconds=30),
    "timeout": timedelta(hours=1),  # of one request with its body: a part of a file to put, or a whole file to read
}
RETRIES: "RetryConfig" = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
MAX_LOG_TEXT = 500  # characters
PART = 5 << 20  # bytes, the minimum of S3; a larger file is put in parts
CONCURRENT_PARTS = 3  # the library buffers twice as many
MAX_PARTS = 10_000  # of one object, a limit of S3
BLOCK = 1 << 20  # bytes
TIMEOUT = 2.5  # seconds for a request that a caller waits for
BLOCK_TIMEOUT = 25.0  # seconds until the next bytes of a file arrive
REDIRECT_LIFETIME = timedelta(minutes=5)  # in which a redirected download must begin
# A browser that is redirected here saves the file and never displays it.
_HEADERS: "Attributes" = {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment"}


def open_store(storage: ObjectStorage) -> S3Store:
    """A client of the bucket, which connects at the first request."""
    # A put is compared with the SHA-256 of its upload when it is read back; the signature does not need another one.
    config: S3Config = {"unsigned_payload": True}
    if storage.endpoint:
        config["aws_endpoint_url_s3"] = storage.endpoint
    if storage.region:
        config["region"] = storage.region
    client: ClientConfig = {**CLIENT, "allow_http": storage.endpoint.startswith("http://")}
    if storage.ca:
        client["root_certificate"] = storage.ca
    key: S3Credential = {
        "access_key_id": storage.key_id,
        "secret_access_key": storage.secret.get_secret_value(),
        "expires_at": None,
    }
    return S3Store(
        storage.bucket,
        prefix=storage.prefix or None,
        config=config,
        disable_bulk_delete=True,  # Not every provider has it.
        client_options=client,
        retry_config=RETRIES,
        # A function, so that a session token in the environment is not used with this key.
        credential_provider=(lambda: key) if storage.key_id else None,
    )


@asynccontextmanager
async def s3_request(operation: str, timeout: float | None = None) -> AsyncIterator[None]:
    """Raise FileNotFoundError for a missing object, and Unavailable for other errors and after `timeout` seconds.

    The removal of a missing object is no error. A put raises OSError if it cannot read its source.
    """
    try:
        async with asyncio.timeout(timeout):
            yield
    except FileNotFoundError as error:
        # An error of the operating system means that the local source file is missing.
        if (operation == "put" and "(os error" not in str(error)) or "NoSuchBucket" in str(error):
            raise _unavailable(operation, error) from None
        if operation != "remove":
            raise
    except TimeoutError:
        raise _unavailable(operation, TimeoutError(f"no response within {timeout} seconds")) from None
    except (BaseError, OSError) as error:
        if operation == "put" and isinstance(error, OSError) and "(os error" in str(error):
            raise  # The local source file cannot be read.
        raise _unavailable(operation, error) from None


def is_not_implemented(error: BaseError) -> bool:
    """Whether the provider does not support the request."""
    return re.search(r"status code: 501|<Code>NotImplemented</Code>", str(error)) is not None


def _unavailable(operation: str, error: Exception) -> Unavailable:
    # The logged texts have no body of the response and no query: they may contain a key id or a token.
    first_line, _, details = str(error).partition("\n")
    code = re.search(r"<Code>(\w{1,64})</Code>", str(error))
    log.error(
        "object_storage_failed",
        doing=operation,
        error=type(error).__name__,
        code=code[1] if code else "",
        said=_without_query(first_line.partition("<")[0]),
        cause=_cause(details),
    )
    return Unavailable("The object storage does not answer; try again soon.")


def _cause(details: str) -> str:
    """The innermost error in the library's dump, on one line; "" if it is a response, whose code is logged."""
    innermost = details.rpartition("source: ")[2]
    if "body: " in innermost:
        return ""
    return _without_query(re.sub(r"\s+", " ", innermost).strip(" ,(){}"))


def _without_query(text: str) -> str:
    return re.sub(r"\?\S*", "", text)[:MAX_LOG_TEXT]


class S3Storage:
    """Implements `InstallerStorage`. An object is complete or does not exist.

    A file up to 5 MiB is created on the condition that its name is free. S3 has no such condition for a file in parts,
    and some providers have none at all. Then the name is looked up first; two concurrent calls replace each other's
    object with the same bytes, because a name belongs to one file. The parts of an interrupted call stay hidden in the
    bucket until a rule of the bucket removes incomplete multipart uploads.
    """

    def __init__(self, storage: ObjectStorage) -> None:
        self._store = open_store(storage)
        self._has_conditions = True

    async def put(self, upload: Upload, source: Path) -> None:
        try:
            await self._put(upload, source)
        except FileNotFoundError:
            if await self.size(upload) is None:
                raise InstallerMissing from None

    async def size(self, upload: Upload) -> int | None:
        try:
            async with s3_request("size", TIMEOUT):
                return (await self._store.head_async(_key(upload)))["size"]
        except FileNotFoundError:
            pass
        # A HEAD gives the same response for a missing bucket; only the body of a GET tells them apart.
        try:
            async with s3_request("size", TIMEOUT):
                return (await self._store.get_async(_key(upload))).meta["size"]
        except FileNotFoundError:
            return None

    async def read(self, upload: Upload, start: int, length: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` on; a connection that breaks off is resumed.

        Raises InstallerMissing, also for a shorter object, and Unavailable.
        """
        position, end = start, start + length
        while position < end:
            start = position
            try:
                async for block in self._blocks(upload, position, end):
                    position += len(block)
                    yield block
            except FileNotFoundError:
                raise InstallerMissing from None
            except Unavailable:
                if position == start:
                    raise
            else:
                if position < end:
                    raise InstallerMissing("The file of this installer is shorter than it was.")

    async def remove(self, upload: Upload) -> None:
        if not upload.server_filename:  # The upload was never complete.
            return
        async with s3_request("remove", TIMEOUT):
            await self._store.delete_async(_key(upload))

    async def list_files(self) -> AsyncIterator[StoredFile]:
        """All installers; objects of other kinds are left out. Ages compare the clock of the storage with ours."""
        async for path, last_modified in self._objects(None):
            tenant_id, _, name = path.rpartition("/")
            if parse_server_filename(name) and is_tenant_id(tenant_id):
                yield StoredFile(tenant_id, name, (datetime.now(UTC) - last_modified).total_seconds())

    async def remove_tenant(self, tenant_id: str) -> None:
        if not is_tenant_id(tenant_id):
            raise ValueError("not a tenant's id")
        async for path, _ in self._objects(tenant_id):
            if parse_server_filename(path.removeprefix(f"{tenant_id}/")):
                async with s3_request("remove"):
                    await self._store.delete_async(path)

    async def sign_url(self, upload: Upload, method: str) -> str:
        """A URL that serves the object for `method` (GET or HEAD), valid for five minutes."""
        async with s3_request("sign", TIMEOUT):
            signed: Literal["HEAD", "GET"] = "HEAD" if method == "HEAD" else "GET"
            return await obstore.sign_async(self._store, signed, _key(upload), REDIRECT_LIFETIME)

    async def _put(self, upload: Upload, source: Path) -> None:
        """Put a file unless its name is taken. Raises FileNotFoundError if the source is missing."""
        size = (await asyncio.to_thread(source.stat)).st_size
        if size <= PART:
            await self._create(upload, await asyncio.to_thread(source.read_bytes))
        elif await self.size(upload) is None:
            part = max(PART, -(-size // MAX_PARTS))
            concurrency = max(1, CONCURRENT_PARTS * PART // part)
            async with s3_request("put"):
                await self._store.put_async(
                    _key(upload), source, attributes=_HEADERS, chunk_size=part, max_concurrency=concurrency
                )

    async def _create(self, upload: Upload, content: bytes) -> None:
        """Put a small file on the condition that its name is free, or look the name up first."""
        if self._has_conditions:
            async with s3_request("put"):
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
            async with s3_request("put"):
                await self._store.put_async(_key(upload), content, attributes=_HEADERS)
        if self._has_conditions:
            log.warning("object_storage_without_conditions")
            self._has_conditions = False

    async def _blocks(self, upload: Upload, start: int, end: int) -> AsyncIterator[bytes]:
        async with s3_request("read", BLOCK_TIMEOUT):
            response = await self._store.get_async(_key(upload), options={"range": (start, end)})
            stream = response.stream(min_chunk_size=BLOCK // 2)
        while True:
            async with s3_request("read", BLOCK_TIMEOUT):
                chunk = await anext(stream, None)
            if chunk is None:
                return
            for at in range(0, len(chunk), BLOCK):
                yield bytes(chunk[at : at + BLOCK])

    async def _objects(self, prefix: str | None) -> AsyncIterator[tuple[str, datetime]]:
        pages = aiter(self._store.list(prefix, chunk_size=1000))
        while True:
            async with s3_request("list", BLOCK_TIMEOUT):
                page = await anext(pages, None)
            if page is None:
                return
            for item in page:
                yield item["path"], item["last_modified"]


def storage_backends(folder: FolderStorage, objects: S3Storage | None) -> StorageBackends:
    """The folder, and the object storage if there is one."""
    backends: dict[StorageKind, InstallerStorage] = {StorageKind.FOLDER: folder}
    return StorageBackends(backends if objects is None else {**backends, StorageKind.S3: objects})


def _key(upload: Upload) -> str:
    return f"{plain_name(upload.tenant_id)}/{plain_name(upload.server_filename)}"
