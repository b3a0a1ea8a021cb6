"""The records of an archive, unpacked into a folder. Its seal vouches for their values.

What remains to check are mistakes, and paths: records are of the one tenant, and each installer matches its record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import bson

from common.mongo import Document
from common.tenants import Tenant, is_tenant_id
from deploy.backup.installers import UPLOADS, parse_upload
from deploy.backup.manifest import ArchiveManifest, BackupProblem, Entry
from deploy.backup.records import DECODED, documents
from upload_service.model import Upload

LOG, HEADS, TENANT = "auth.audit_log.bson", "auth.audit_heads.bson", "auth.tenants.bson"
RESTORED = (  # as they are, in this order
    "catalog.packages.bson",
    "catalog.versions.bson",
    "catalog.release_policies.bson",
    "catalog.package_signers.bson",
    "catalog.finished_uploads.bson",
    "clients.releases.bson",
    "clients.clients.bson",
    "clients.entries.bson",
    "clients.groups.bson",
    "auth.users.bson",
)


@dataclass(frozen=True)
class ArchiveRecords:
    """Every method raises BackupProblem for a record that does not fit."""

    folder: Path
    manifest: ArchiveManifest

    def check(self) -> Tenant:
        """Read all records; the tenant."""
        if {entry.name for entry in self.manifest.records} != {*RESTORED, LOG, HEADS, TENANT, UPLOADS}:
            raise BackupProblem("the archive has other records than this version exports")
        if not is_tenant_id(self.manifest.tenant_id):
            raise BackupProblem("the archive contains an invalid tenant id")
        for read in (self.installers(), *map(self.documents, (*RESTORED, LOG, HEADS))):
            for _ in read:
                pass
        rows = list(self.documents(TENANT))
        if len(rows) != 1:
            raise BackupProblem(f"{TENANT}: is not the record of one tenant")
        # An archive has no company login, so all users sign in with their password.
        return replace(Tenant.from_document(rows[0]), login_name="", password_login=True)

    def installers(self) -> Iterator[tuple[Upload, Entry]]:
        """Each installer's record and its file, in the archive's order."""
        entries = iter(self.manifest.files)
        for document in self.documents(UPLOADS):
            entry, upload = next(entries, None), parse_upload(document)
            file = (upload.server_filename, upload.size, upload.sha256)
            if entry is None or file != (entry.name, entry.size, entry.sha256):
                raise BackupProblem(f"{UPLOADS}: has a record that does not match an installer of the archive")
            yield upload, entry
        if next(entries, None) is not None:
            raise BackupProblem(f"{UPLOADS}: lacks the record of an installer of the archive")

    def documents(self, name: str) -> Iterator[Document]:
        """The documents of one collection."""
        for raw in documents(self.folder / name):
            document = bson.decode(raw.raw, DECODED)
            if document.get("tenant_id") != self.manifest.tenant_id:
                raise BackupProblem(f"{name}: has a record of another tenant")
            yield document
