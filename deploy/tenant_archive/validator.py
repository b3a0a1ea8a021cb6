"""Validates the records of an archive that anyone may have made.

The maker of an archive gets the rights of an administrator of its tenant, and no more. A record is accepted if an
administrator could have made it through the interface: see `record_rules`. Files, and fields that services use across
tenants, must be as the services write them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import orjson
from bson.codec_options import CodecOptions
from bson.errors import BSONError

from auth_service.forms import ring_rules, source_agreements
from catalog_service.model.versions import version_of
from catalog_service.releases.policy import Policy
from client_registry.clients.model import uuid_text
from common.auth.entra_app import EntraApp
from common.errors import Problem
from common.mongo import Document
from common.tenants import Tenant, VersionKey, is_tenant_id, parse_network
from deploy.backup.installers import UPLOADS, parse_upload
from deploy.backup.manifest import ArchiveManifest, BackupProblem, Entry
from deploy.backup.records import documents
from deploy.tenant_archive.record_rules import CHECKS, check_record
from deploy.tenant_archive.record_types import BadRecord
from deploy.tenant_archive.release_records import POLICIES, SIGNERS
from upload_service.inspection.model import State
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.scanning.model import ScanState, scan_document
from upload_service.store import LEASE_FREE, record_key

MAX_INT64 = 2**63 - 1
DECODED: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)
_REQUEST_ID = re.compile(r"[\w.-]{0,128}", re.ASCII)
TENANT = "auth.tenants.bson"


@dataclass(frozen=True)
class ArchiveValidator:
    """The records of an archive, unpacked into a folder. Every method raises BackupProblem for an invalid record."""

    folder: Path
    manifest: ArchiveManifest

    def check(self) -> Tenant:
        """Check all records; the tenant."""
        # Archives of releases up to 0.1.0 have no policies and no signers.
        if {entry.name for entry in self.manifest.records} | {POLICIES, SIGNERS} != {*CHECKS, TENANT, UPLOADS}:
            raise BackupProblem("the archive has other records than this version exports")
        if not is_tenant_id(self.manifest.tenant_id):
            raise BackupProblem("the archive contains an invalid tenant id")
        files = {upload.server_filename for upload, _ in self.installers()}
        for name in CHECKS:
            for document in self.documents(name):
                try:
                    check_record(name, document)
                except BadRecord as reason:
                    raise BackupProblem(f"{name}: the record {str(document['_id'])[:40]!r} {reason}") from None
                if name == "catalog.versions.bson":
                    version = version_of(document)
                    if version.server_filename not in ({""} if version.installer_url else files):
                        raise BackupProblem(f"{name}: a version's installer is neither in the archive nor external")
        return self._tenant()

    def installers(self) -> Iterator[tuple[Upload, Entry]]:
        """Each installer's record and its file, in the archive's order."""
        entries = iter(self.manifest.files)
        for document in self.documents(UPLOADS):
            entry, upload = next(entries, None), parse_upload(document)
            file = (upload.server_filename, upload.size, upload.sha256)
            if entry is None or file != (entry.name, entry.size, entry.sha256) or not _is_sound(upload):
                raise BackupProblem(f"{UPLOADS}: has a record that does not match an installer of the archive")
            yield upload, entry
        if next(entries, None) is not None:
            raise BackupProblem(f"{UPLOADS}: lacks the record of an installer of the archive")

    def documents(self, name: str) -> Iterator[Document]:
        """The documents of one collection."""
        if name not in {entry.name for entry in self.manifest.records}:
            return
        for raw in documents(self.folder / name):
            try:
                document = bson.decode(raw.raw, DECODED)
            except (BSONError, RecursionError):
                raise BackupProblem(f"{name}: contains an invalid document") from None
            if document.get("tenant_id") != self.manifest.tenant_id or "_id" not in document:
                raise BackupProblem(f"{name}: has a record of another tenant")
            yield document

    def _tenant(self) -> Tenant:
        rows = list(self.documents(TENANT))
        try:
            (document,) = rows
            networks = [parse_network("allowed_networks", text) for text in document["allowed_networks"]]
            return Tenant(
                self.manifest.tenant_id,
                client_authentication=document["client_authentication"] is True,
                allowed_networks=tuple(networks),
                storage_quota=_limit(document["storage_quota"]),
                max_clients=_limit(document["max_clients"]),
                version_key=VersionKey(document["version_key"]),
                strict_installers=document.get("strict_installers") is True,
                source_agreements=source_agreements(document.get("source_agreements", "")),
                entra=EntraApp.from_document(app) if (app := document.get("entra")) is not None else None,
                **_release_policy(document),
            )
        except (KeyError, ValueError, TypeError, AttributeError, Problem):
            raise BackupProblem(f"{TENANT}: is not the record of one tenant") from None


def _release_policy(document: Document) -> dict[str, Any]:
    """The fields of a tenant's policy for releases; records of releases up to 0.1.0 have none. Raises ValueError."""
    rings, rules = document.get("rings", []), document.get("ring_rules", [])
    texts = {name: document.get(name, "") for name in ("gates", "retention")}
    named = [rule["ring"] for rule in rules]  # also rings that were removed later
    parts = {name: orjson.loads(text) for name, text in texts.items() if text}
    Policy.model_validate({"rings": rings + named, **parts})
    return {"rings": tuple(rings), "ring_rules": ring_rules(orjson.dumps(rules).decode(), named), **texts}


def installer_document(upload: Upload) -> Document:
    """The record of an installer in the folder: complete, announced, linked, and verified now."""
    now = datetime.now(UTC)
    return {
        **record_key(upload),
        "total": upload.size,
        "offset": upload.size,
        "fence": upload.fence,
        "lease_until": LEASE_FREE,
        "status": Status.LINKED,
        "tainted": False,
        "part": 0,
        "home": StorageKind.FOLDER,
        "damage": Damage.NONE,
        "server_filename": upload.server_filename,
        "size": upload.size,
        "sha256": upload.sha256,
        "version_uid": upload.version_uid,
        "request_id": upload.request_id,
        "announced": True,
        "announcing_until": LEASE_FREE,
        "inspection": State.PENDING,  # The archive's results are not trusted, except that a file is infected.
        **({"scan": scan_document(ScanState.INFECTED, upload.sha256, now)} if upload.is_infected else {}),
        "scan_due": now,
        "scan_since": now,
        "withheld": upload.is_withheld,
        "checked_at": now,
        "updated_at": now,
    }


def _is_sound(upload: Upload) -> bool:
    """Whether the imported values are as the services write them; `parse_upload` checks the others."""
    return (
        upload.status is Status.LINKED
        and isinstance(upload.fence, int)
        and 0 <= upload.fence <= MAX_INT64
        and isinstance(upload.is_withheld, bool)
        and isinstance(upload.version_uid, str)
        and uuid_text(upload.version_uid) == upload.version_uid
        and isinstance(upload.request_id, str)
        and _REQUEST_ID.fullmatch(upload.request_id) is not None
    )


def _limit(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT64):
        return value
    raise ValueError("no limit")
