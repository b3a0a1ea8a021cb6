"""Exports one tenant into an archive, and imports it elsewhere, while the services run.

The archive leaves out unfinished work and uploads, installers without a version, sessions, API tokens, and keys. It
has no company login, which has a secret, and no users of one. Its seal vouches for the values of its records.

An import adds the tenant itself last: nobody can sign in before. The services' background work does not interfere: an
installer's record is added after its file, and an archive has no unfinished work.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import bson

from auth_service.audit.store import ChainBroken, Head, SignedHead, parse_document, verify
from auth_service.tenants.store import MongoTenantStore, TenantExists
from auth_service.users.store import HAS_PASSWORD
from catalog_service.releases.store import UNREMEMBERED, MongoReleaseStore
from common.mongo import Document, MongoDatabase
from common.redis import TenantVersions, open_redis
from common.tenants import Tenant, is_tenant_id
from deploy.backup.archive import FILES, RECORDS, ArchiveReader, ArchiveWriter, part_path
from deploy.backup.installers import (
    UPLOADS,
    CopyOutcome,
    InstallerSource,
    copy_installer,
    has_size,
    installer_document,
    installers_of,
    parse_upload,
    verify_blocks,
)
from deploy.backup.records import (
    AUDIT,
    DECODED,
    ArchiveManifest,
    BackupProblem,
    Client,
    DatabaseSnapshot,
    Entry,
    Passphrase,
    collections,
    documents,
    key_fingerprints,
    restore_documents,
    snapshot_read,
)
from deploy.backup.restorer import RestoreMarker, claim_storage
from deploy.operator.stores import (
    Storage,
    StoreAddresses,
    migrate_imported,
    open_database,
    require_known_schemas,
    versions,
)
from deploy.operator.tenants import OperatorAudit, open_operator_audit
from deploy.terminal import FileProgress
from upload_service.model import Status, Upload
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.store import MongoMoveStore
from upload_service.uploads.store import MongoUploadStore

LOG, HEADS, TENANT = "auth.audit_log.bson", "auth.audit_heads.bson", "auth.tenants.bson"
RESTORED = (  # as they are, in this order; exported whole unless the exporter has a query
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
ATTEMPTS = 3


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


class InstallerDeleted(Exception):
    """An installer was deleted after the records were read."""


@dataclass
class TenantExporter:
    """One run. `resumed` is the number of installers that an earlier run had written."""

    path: Path
    tenant_id: str
    passphrase: Passphrase
    storage: Storage
    progress: FileProgress
    resumed: int = 0

    async def run(self, where: StoreAddresses) -> ArchiveManifest:
        """Write the archive. An interrupted run resumes when it is run again. Raises BackupProblem and Unavailable."""
        async with open_database(where.addresses.mongo_url, "upload") as upload:
            await claim_storage(self.storage, upload)
            unfinished = await self._read_unfinished()
            for _ in range(ATTEMPTS):
                manifest, position = unfinished or await self._begin(where, upload.client)
                sizes = [entry.size for entry in manifest.files]
                self.progress.start("copying", sum(sizes))
                self.progress.advance(sum(sizes[: self.resumed]))
                with suppress(InstallerDeleted), ArchiveWriter(self.path, position) as archive:
                    for entry in manifest.files[self.resumed :]:
                        await self._write_installer(archive, entry, upload)
                    archive.finish()
                    return manifest
                unfinished = None
        raise BackupProblem(f"{self.tenant_id}: versions are deleted during the export; try again when fewer are")

    async def _read_unfinished(self) -> tuple[ArchiveManifest, int] | None:
        """The manifest of an interrupted run, and the position after its last valid installer."""
        if not part_path(self.path).exists():
            return None
        with ArchiveReader(part_path(self.path)) as reader:
            try:
                manifest, _ = reader.manifest(self.passphrase)
                for entry in manifest.records:
                    async for _ in reader.read(RECORDS, entry):
                        pass
            except BackupProblem:
                return None
            position = reader.position
            with suppress(BackupProblem):  # The interrupted run ended within an entry.
                for entry in manifest.files:
                    async for _ in reader.read(FILES, entry):
                        pass
                    position = reader.position
                    self.resumed += 1
        return (manifest, position) if manifest.tenant_id == self.tenant_id else None

    async def _begin(self, where: StoreAddresses, client: Client) -> tuple[ArchiveManifest, int]:
        """Write the manifest and the records; the position after them."""
        self.resumed = 0
        schemas = await versions(client["auth"])
        with TemporaryDirectory(dir=self.path.parent, prefix=f".{self.path.name}.") as name:
            folder = Path(name)
            records = await snapshot_read(client, lambda snapshot: self._read_records(snapshot, folder))
            installers = installers_of(folder)
            files = [Entry(name=file.server_filename, size=file.size, sha256=file.sha256) for file in installers]
            manifest = ArchiveManifest(
                made_at=datetime.now(UTC),
                keys=key_fingerprints(where),
                schemas=schemas,
                records=records,
                tenant_id=self.tenant_id,
                audit_head=_audit_head(folder),
                files=files,
            )
            with ArchiveWriter(self.path, 0) as archive:
                archive.start(manifest.model_dump_json(indent=1).encode(), self.passphrase)
                for entry in records:
                    with (folder / entry.name).open("rb") as file:
                        archive.add(RECORDS + entry.name, file, entry.size)
                return manifest, archive.position

    async def _read_records(self, snapshot: DatabaseSnapshot, folder: Path) -> list[Entry]:
        """Write the tenant's records without unfinished work."""
        entries: list[Entry] = []

        async def export(database: str, collection: str, query: Document, field: str = "", sort: str = "") -> set[str]:
            """Write the documents of a query; the values of `field` in them."""
            entry = await snapshot.export(database, collection, folder, {"tenant_id": self.tenant_id, **query}, sort)
            entries.append(entry)
            return {str(document.get(field)) for document in documents(folder / entry.name)} if field else set()

        versions = snapshot.client["catalog"]["versions"]
        if await versions.find_one({"tenant_id": self.tenant_id, **UNREMEMBERED}, session=snapshot.session):
            raise BackupProblem(f"{self.tenant_id}: versions are being deleted; try again in a minute")
        packages = await export("catalog", "packages", {"halfway": False}, "package_uid")
        active: Document = {"state": "active", "package_uid": {"$in": list(packages)}}
        uids = await export("catalog", "versions", active, "uid")
        uids |= await export("clients", "releases", {"status": "active"}, "uid")
        linked: Document = {"status": Status.LINKED, "version_uid": {"$in": list(uids)}}
        names = await export("upload", "uploads", linked, "server_filename")
        await export("catalog", "finished_uploads", {"server_filename": {"$in": list(names)}, "linked": True})
        await export("auth", "audit_log", {}, sort="sequence")
        await export("auth", "users", HAS_PASSWORD)
        for name in sorted({*RESTORED, HEADS, TENANT} - {entry.name for entry in entries}):
            database, collection, _ = name.split(".")
            await export(database, collection, {})
        return entries

    async def _write_installer(self, archive: ArchiveWriter, entry: Entry, upload: MongoDatabase) -> None:
        """Write an installer, also if it moves to another storage meanwhile. Raises InstallerDeleted."""
        position = archive.position

        async def write(blocks: AsyncGenerator[bytes, None], installer: Upload) -> None:
            archive.go_back(position)
            archive.header(FILES + entry.name, entry.size)
            async with aclosing(verify_blocks(blocks, installer)) as verified:
                async for block in verified:
                    archive.write(block)
                    self.progress.advance(len(block))
            archive.pad(entry.size)

        installer = await MongoUploadStore(upload).find_installer(self.tenant_id, entry.name)
        if installer is None or installer.status is not Status.LINKED or installer.sha256 != entry.sha256:
            raise InstallerDeleted
        source = InstallerSource(MongoMoveStore(upload).find, self.storage.backends)
        outcome = await source.copy(installer, write, self.progress)
        if outcome is CopyOutcome.GONE:
            raise InstallerDeleted
        if outcome is not CopyOutcome.COPIED:
            raise BackupProblem(
                f"{self.tenant_id}/{entry.name}: is missing or damaged; repair the file, or delete its version"
            )


def _audit_head(folder: Path) -> str:
    head = Head()
    for document in documents(folder / "auth.audit_log.bson"):
        head = Head(document["sequence"], document["hash"])
    return str(head)


@dataclass
class TenantImporter:
    """One run. `other_keys` has the settings that lack a key of the archive."""

    path: Path
    passphrase: Passphrase
    storage: Storage
    progress: FileProgress
    other_keys: list[str] = field(default_factory=list)

    async def run(self, where: StoreAddresses) -> ArchiveManifest:
        """Import all of it. An interrupted run resumes when it is run again. Raises BackupProblem."""
        with ArchiveReader(self.path) as archive, TemporaryDirectory(prefix="pkgrepo-") as folder:
            manifest, source = archive.manifest(self.passphrase)
            require_known_schemas(manifest.schemas, "the archive's ")
            self.other_keys = manifest.missing_keys(where)
            records = ArchiveRecords(Path(folder), manifest)
            for entry in manifest.records:
                with (records.folder / entry.name).open("wb") as file:
                    async for block in archive.read(RECORDS, entry):
                        file.write(block)
            tenant = records.check()
            async with (
                open_database(where.addresses.mongo_url, "upload") as upload,
                open_operator_audit(where) as audit,
                open_redis(where.addresses.redis_url) as redis,
            ):
                client: Client = upload.client
                await claim_storage(self.storage, upload)
                marker = RestoreMarker(client, tenant.tenant_id, source)
                if not await marker.is_set():
                    await self._require_absent(client, tenant.tenant_id)
                    await marker.set()
                await self._import_installers(archive, records, upload)
                for name in RESTORED:
                    database, collection, _ = name.split(".")
                    await restore_documents(client, database, collection, records.documents(name))
                await MongoReleaseStore.withhold_again(client["catalog"], tenant.tenant_id)
                await self._import_audit_log(records, client, audit)
                await migrate_imported(where, manifest.schemas)
                ledgers = Reconciliation(MongoQuotaStore(upload), pause=0)
                for drift in await ledgers.find_all_drift(tenant.tenant_id):
                    await ledgers.repair(drift)
                await audit.add(
                    tenant.tenant_id, "tenant_import", archive_sha256=source, audit_head=manifest.audit_head
                )
                with suppress(TenantExists):  # An earlier run was interrupted after this line.
                    await MongoTenantStore(client["auth"]).add(tenant)
                await TenantVersions(redis).bump(tenant.tenant_id)
                await marker.clear()
        return manifest

    async def _require_absent(self, client: Client, tenant_id: str) -> None:
        """Raise BackupProblem if the databases or the storage have anything of the tenant."""
        advice = f"run `pkgrepo tenant delete {tenant_id}` to remove it"
        for database, collection in await collections(client):
            if collection == "retention_runs":  # A replica may add the run while the tenant is deleted.
                continue
            if await client[database][collection].find_one({"tenant_id": tenant_id}, {"_id": True}):
                raise BackupProblem(f"{tenant_id}: exists already, in {database}.{collection}; {advice}")
        folder = self.storage.folder / tenant_id
        if folder.exists() and any(folder.iterdir()):
            raise BackupProblem(f"{tenant_id}: has installers here already; {advice}")

    async def _import_installers(self, archive: ArchiveReader, records: ArchiveRecords, upload: MongoDatabase) -> None:
        self.progress.start("copying", sum(entry.size for entry in records.manifest.files))
        for installer, entry in records.installers():
            target = self.storage.path(installer)
            if has_size(target, installer.size):
                archive.skip(FILES, entry)
                self.progress.advance(entry.size)
            else:
                await copy_installer(archive.read(FILES, entry), installer, target, self.progress)
            key = {"tenant_id": installer.tenant_id, "upload_id": installer.upload_id}
            await upload["uploads"].update_one(key, {"$setOnInsert": installer_document(installer)}, upsert=True)
        archive.end()

    async def _import_audit_log(self, records: ArchiveRecords, client: Client, audit: OperatorAudit) -> None:
        """Copy the audit log with its signatures. Under other keys, record its entries again in the same order."""
        tenant_id = records.manifest.tenant_id
        if AUDIT in self.other_keys:
            for document in records.documents(LOG):
                chained = parse_document(document)
                if chained is None:
                    raise BackupProblem(f"{LOG}: an entry is not one of an audit log")
                await audit.audit.record(tenant_id, chained.entry)
            return
        await restore_documents(client, "auth", "audit_log", records.documents(LOG))
        for document in records.documents(HEADS):
            head = SignedHead(Head(document["sequence"], document["hash"]), document["seal"])
            await audit.store.save_head(tenant_id, head)
        try:
            await verify(audit.store, audit.signer, tenant_id)
        except ChainBroken as broken:
            raise BackupProblem(
                f"{tenant_id}: its audit log was changed ({broken}), so the tenant is not imported; "
                f"run `pkgrepo tenant delete {tenant_id}` to remove what was imported"
            ) from None
