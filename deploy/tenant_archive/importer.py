"""Imports a tenant from an archive beside running services. The tenant itself is added last: nobody can sign in before.

The services' background work does not interfere: an installer's record is added after its file, and an archive has no
unfinished work.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from auth_service.audit.chain import ChainBroken, verify
from auth_service.audit.model import Head, SignedHead
from auth_service.audit.store import parse_document
from auth_service.tenants.model import TenantExists
from auth_service.tenants.store import MongoTenantStore
from catalog_service.releases.store import MongoReleaseStore
from common.caching.tenant_version import TenantVersions
from common.mongo import MongoDatabase
from common.redis import open_redis
from deploy.backup.installers import copy_installer, has_size, installer_document
from deploy.backup.manifest import AUDIT, ArchiveManifest, BackupProblem, Passphrase
from deploy.backup.records import Client, collections, restore_documents
from deploy.backup.target import RestoreMarker, claim_storage
from deploy.operator.audit import OperatorAudit, open_operator_audit
from deploy.operator.schemas import migrate_imported, open_database, require_known_schemas
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.tenant_archive.archive import FILES, RECORDS, ArchiveReader
from deploy.tenant_archive.records import HEADS, LOG, RESTORED, ArchiveRecords
from deploy.terminal import FileProgress
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore


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
            if collection == "retention_runs":  # A replica may add the day of a run while the tenant is deleted.
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
