"""The checks of the files of versions, for the gates of release control."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from upload_service.inspection.inspector import Inspector
from upload_service.inspection.model import Inspection
from upload_service.model import InstallerNotFound
from upload_service.scanning.checks_store import MongoCheckStore
from upload_service.scanning.model import ScanState, scan_document
from upload_service.scanning.store import MongoScanStore


@dataclass(frozen=True)
class InstallerCheck:
    """The scan and the inspection of the file of a version."""

    version_uid: str
    sha256: str
    scan: dict[str, Any]
    inspection: Inspection


@dataclass(frozen=True)
class InstallerChecks:
    """Reads the checks of files. With `scans`, files without a verdict become due for a scan."""

    store: MongoCheckStore
    inspector: Inspector
    scans: MongoScanStore | None

    async def find(self, tenant_id: str, version_uids: Sequence[str]) -> list[InstallerCheck]:
        """The checks of the files of these versions; a version without a file is left out."""
        if self.scans:
            await self.scans.make_unscanned_due(tenant_id, version_uids)
        checks = []
        async for upload, scan in self.store.find(tenant_id, version_uids):
            with suppress(InstallerNotFound):  # It was removed meanwhile.
                inspection = await self.inspector.find(tenant_id, upload.server_filename)
                checks.append(InstallerCheck(upload.version_uid, upload.sha256, self._scan(scan), inspection))
        return checks

    def _scan(self, scan: dict[str, Any]) -> dict[str, Any]:
        return scan or scan_document(ScanState.PENDING if self.scans else ScanState.OFF)
