"""The inspector of a replica with a reader of the tests' own."""

import asyncio
from dataclasses import dataclass, field
from typing import BinaryIO

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.upload import folder_backends, serving_uploads
from upload_service.inspection.inspector import Inspector
from upload_service.inspection.model import Findings, Format, Signature, SignatureState
from upload_service.inspection.process import InstallerFiles
from upload_service.inspection.store import MongoInspectionStore
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import PartFiles

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


def inspector(database: MongoDatabase, settings: UploadSettings, reader: Reader) -> Inspector:
    """The inspector of a replica."""
    folder = settings.installers
    lender = InstallerFiles(folder_backends(folder), FolderStorage(folder, PartFiles(folder)), folder)
    return Inspector(MongoInspectionStore(database, VERSION), lender, reader.read, reader.verify)


async def uploaded(settings: UploadSettings, caller: Caller, *contents: bytes) -> list[str]:
    """The names of files that were uploaded while no replica inspected."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upload_service.inspection.inspector.IN_BACKGROUND", 0)
        async with serving_uploads(settings) as api:
            return [await api.upload(caller, content) for content in contents]
