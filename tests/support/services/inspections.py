"""The inspector of a replica with a reader of the tests' own."""

import asyncio
from dataclasses import dataclass, field
from typing import BinaryIO

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from common.work import is_waiting
from tests.support.services.upload import folder_backends, make_uploader, serving_uploads
from tests.support.wait import until
from upload_service.inspection.inspector import Inspector
from upload_service.inspection.model import Findings, Format, Inspection, Signature, SignatureState
from upload_service.inspection.process import InstallerFiles
from upload_service.inspection.store import MongoInspectionStore
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import PartFiles
from upload_service.store import INSPECT

VERSION = "1"  # of verdicts about signatures


@dataclass
class Reader:
    """A reader that returns given findings and counts its calls."""

    findings: Findings = field(default_factory=lambda: Findings(format=Format.EXE))
    failure: BaseException | None = None
    readings: list[bytes] = field(default_factory=list)

    async def read(self, file: BinaryIO, suffix: str) -> Findings:
        self.readings.append(file.read())
        if self.failure:
            raise self.failure
        return self.findings

    async def verify(self, file: BinaryIO) -> Signature:
        return Signature(SignatureState.UNSIGNED)


@dataclass
class BlockedReader(Reader):
    """Reads the file `hostile` until it is released."""

    started_reads: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, file: BinaryIO, suffix: str) -> Findings:
        findings = await super().read(file, suffix)
        if self.readings[-1].startswith(b"hostile"):
            self.started_reads += 1
            await self.released.wait()
        return findings

    async def until_started(self) -> None:
        async def has_started() -> bool:
            return self.started_reads > 0

        await until(has_started)


@dataclass(frozen=True)
class Inspecting:
    """The uploads of tenants that only the inspectors of a test inspect."""

    settings: UploadSettings
    database: MongoDatabase
    caller: Caller = field(default_factory=make_uploader)

    @property
    def store(self) -> MongoInspectionStore:
        return MongoInspectionStore(self.database, VERSION)

    async def upload(self, *contents: bytes, caller: Caller | None = None) -> list[str]:
        """The names of files that were uploaded while no replica inspected."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("upload_service.inspection.inspector.IN_BACKGROUND", 0)
            async with serving_uploads(self.settings) as api:
                return [await api.upload(caller or self.caller, content) for content in contents]

    def inspector(self, reader: Reader) -> Inspector:
        """The inspector of a replica."""
        folder = self.settings.installers
        lender = InstallerFiles(folder_backends(folder), FolderStorage(folder, PartFiles(folder)), folder)
        return Inspector(self.store, lender, reader.read, reader.verify)

    async def run(self, reader: Reader) -> None:
        """Inspect what is due."""
        await self.inspector(reader).worker().run_due()

    async def let_time_pass(self, seconds: float) -> None:
        earlier = {"work.inspect.due": {"$subtract": ["$work.inspect.due", seconds * 1000]}}
        await self.database["uploads"].update_many(is_waiting(INSPECT), [{"$set": earlier}])

    async def find(self, name: str, caller: Caller | None = None) -> Inspection:
        return await self.inspector(Reader()).find((caller or self.caller).tenant_id, name)
