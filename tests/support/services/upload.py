"""A running upload_service, with a real MongoDB and folder, and in-process events."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import BytesIOPayload, ClientSession, MultipartWriter

from common.auth.downloads import download_url
from common.auth.internal_tokens import Caller
from common.auth.signing import Keys
from common.events import Event, Events, LocalEvents
from common.http.server import management_of, serving
from tests.support.api import Answer, ServiceApi, read_answer
from tests.support.factories import KEY, make_caller, make_tenant
from tests.support.metrics import MetricSamples, fetch_metrics
from upload_service.app import create_app
from upload_service.model import StorageKind
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.part_files import PartFiles
from upload_service.uploads.claims import Removal
from upload_service.uploads.store import MongoUploadStore

DOWNLOAD_KEYS = Keys("a-key-for-downloads-in-tests-long-enough")
FOREVER = 32503680000  # seconds since 1970: the year 3000


@dataclass(frozen=True)
class UploadApi:
    """A client of an upload_service, with its folder and the events it has announced."""

    service: ServiceApi
    folder: Path
    announced: list[Event] = field(default_factory=list)
    management: str = ""

    async def metrics(self) -> MetricSamples:
        return await fetch_metrics(self.service.session, self.management)

    async def chunk(
        self,
        caller: Caller,
        file_id: str,
        data: bytes,
        start: int,
        total: int,
        *,
        end: int | None = None,
        name: str = "c",
    ) -> Answer:
        """Send `data` as a chunk that begins at `start`."""
        last = start + len(data) - 1 if end is None else end
        return await self.send(caller, file_id, f"bytes {start}-{last}/{total}", form(("chunk", data, name)))

    async def send(self, caller: Caller, file_id: str, content_range: str, body: MultipartWriter) -> Answer:
        headers = {"X-File-ID": file_id, "Content-Range": content_range}
        return await self.service.call(caller, "POST", "upload_package_version", headers=headers, data=body)

    async def store(self, caller: Caller, *parts: tuple[str, bytes | str, str | None]) -> Answer:
        """Send a one-call form."""
        return await self.service.call(caller, "POST", "store_installer", data=form(*parts))

    async def state(self, caller: Caller, file_id: str) -> Answer:
        return await self.service.call(caller, "GET", "upload_package_version", headers={"X-File-ID": file_id})

    async def cancel(self, caller: Caller, file_id: str) -> Answer:
        return await self.service.call(caller, "DELETE", "upload_package_version", headers={"X-File-ID": file_id})

    async def upload(self, caller: Caller, data: bytes, *, name: str = "c") -> str:
        """Send a file in one chunk; returns its server filename."""
        answer = await self.chunk(caller, uuid4().hex, data, 0, len(data), name=name)
        assert answer.status == 200, answer.body
        return str(answer.body["server_filename"])

    async def post(self, caller: Caller, operation: str, **body: Any) -> Answer:
        return await self.service.call(caller, "POST", operation, json=body)

    async def claim(self, caller: Caller, server_filename: str, version_uid: str = "v1") -> Answer:
        return await self.post(caller, "claim_installer", server_filename=server_filename, version_uid=version_uid)

    async def usage(self, caller: Caller) -> tuple[int, int]:
        """Bytes used and reserved."""
        body = (await self.post(caller, "storage_usage")).body
        return body["storage_used"], body["storage_reserved"]

    def files(self, caller: Caller) -> list[str]:
        """The names of the files in the tenant's folder, including part files."""
        folder = self.folder / caller.tenant_id
        return sorted(path.name for path in folder.rglob("*") if not path.is_dir())

    def part(self, caller: Caller, file_id: str) -> Path:
        """The file of an open transfer."""
        (path,) = (self.folder / caller.tenant_id).rglob(f"upload_{file_id}.part")
        return path

    def address(self, caller: Caller, server_filename: str, **options: Any) -> str:
        """A download address, as catalog_service signs it."""
        options = {"file_name": "setup.exe", "expires": FOREVER, "keys": DOWNLOAD_KEYS, **options}
        return download_url(caller, direct=self.service.address, server_filename=server_filename, **options)

    async def get(self, address: str, *, method: str = "GET", **headers: str) -> Answer:
        """Request an address without a token; `_` in a header's name stands for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.service.session.request(method, address, headers=sent) as response:
            return await read_answer(response)


def form(*parts: tuple[str, bytes | str, str | None]) -> MultipartWriter:
    """A multipart form of parts: name, value, and a file name or None."""
    writer = MultipartWriter("form-data")
    for name, value, file_name in parts:
        words = {"name": name} if file_name is None else {"name": name, "filename": file_name}
        payload = BytesIOPayload(BytesIO(value.encode() if isinstance(value, str) else value))
        payload.set_content_disposition("form-data", quote_fields=False, **words)
        writer.append_payload(payload)
    return writer


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_uploader(**settings: Any) -> Caller:
    """An administrator of a tenant with these settings."""
    return make_caller(make_tenant(**settings))


def settings_for(mongo_url: str, folder: Path, **settings: Any) -> UploadSettings:
    return UploadSettings(
        **{
            "internal_key": KEY,
            "download_key": DOWNLOAD_KEYS,
            "mongo_url": mongo_url,
            "database": f"test_upload_{uuid4().hex[:8]}",
            "installers": folder,
            **settings,
        }
    )


def folder_backends(folder: Path) -> StorageBackends:
    """The shared folder as the only storage."""
    return StorageBackends({StorageKind.FOLDER: FolderStorage(folder, PartFiles(folder))})


def make_removal(store: MongoUploadStore, quota: MongoQuotaStore, folder: Path) -> Removal:
    return Removal(store, quota, PartFiles(folder), folder_backends(folder))


@asynccontextmanager
async def serving_uploads(settings: UploadSettings, events: Events | None = None) -> AsyncIterator[UploadApi]:
    """Run the service. Without `events`, its events are in `announced`."""
    announced: list[Event] = []
    if events is None:
        events = LocalEvents()

        async def record(event: Event) -> None:
            announced.append(event)

        await events.subscribe("tests", "upload.finished", record)
    app = create_app(settings, events)
    async with (
        serving(app, "127.0.0.1:0") as address,
        serving(management_of(app), "127.0.0.1:0") as management,
        ClientSession() as session,
    ):
        yield UploadApi(ServiceApi(session, address, "upload_service"), settings.installers, announced, management)
