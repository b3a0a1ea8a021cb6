"""A tenant out of an archive, beside running services: the tenant itself comes last, so nobody is let in before.

What services do of their own accord meanwhile finds nothing to do: an installer's record comes after its file, and
nothing that is imported is halfway.
"""

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pymongo.errors import DuplicateKeyError

from auth_service.audit.chain import Head, SignedHead
from auth_service.audit.store import parse_document
from auth_service.audit.verify import ChainBroken, verify
from auth_service.tenants.model import TenantExists
from auth_service.tenants.store import MongoTenantStore
from common.caching.tenant_version import TenantVersions
from common.mongo import Document, MongoDatabase
from common.redis import open_redis
from deploy.backup.copies import copy, has_size
from deploy.backup.empty import claim_storage
from deploy.backup.key_prints import AUDIT, fingerprints, missing_keys
from deploy.backup.manifest import ArchiveManifest, BackupProblem
from deploy.backup.marker import Marker
from deploy.backup.records import DATABASES, Client, restore_documents
from deploy.operator.audit import Record, open_record
from deploy.operator.schemas import bring_up_again, check_known, open_database
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.publish.progress import Row
from deploy.tenant_archive.archive import FILES, RECORDS, ArchiveReader
from deploy.tenant_archive.validation import SETTLED, ArchiveValidator, installer_document
from upload_service.model import Upload
from upload_service.quota.ledger_store import MongoLedgerStore
from upload_service.quota.reconciliation import Reconciliation

LOG, HEADS = "auth.audit_log.bson", "auth.audit_heads.bson"


@dataclass
class Import:
    """The command at work. `other_keys` names the settings that lack a key which the records were made under."""

    path: Path
    storage: Storage
    row: Row
    other_keys: list[str] = field(default_factory=list)
    _done: int = 0

    async def run(self, where: StoreAddresses) -> ArchiveManifest:
        """Import all of it. Cut short, it goes on when it is run again. Raises BackupProblem."""
        with ArchiveReader(self.path) as archive, TemporaryDirectory(prefix="pkgrepo-") as name:
            manifest, source = archive.manifest()
            check_known(manifest.schemas, "the archive's ")
            self.other_keys = missing_keys(manifest.keys, fingerprints(where))
            strangers = ArchiveValidator(Path(name), manifest)
            for entry in manifest.records:
                with (strangers.folder / entry.name).open("wb") as file:
                    for block in archive.read(RECORDS, entry):
                        file.write(block)
            tenant = strangers.check()
            async with AsyncExitStack() as stack:
                upload = await stack.enter_async_context(open_database(where.addresses.mongo_url, "upload"))
                record = await stack.enter_async_context(open_record(where))
                redis = await stack.enter_async_context(open_redis(where.addresses.redis_url))
                client: Client = upload.client
                await claim_storage(self.storage, upload)
                marker = Marker(client, tenant.tenant_id, source)
                if not await marker.is_set():
                    await self._check_absent(client, tenant.tenant_id)
                    await marker.set()
                await self._bring_installers(archive, strangers, upload)
                await self._put_records(strangers, client)
                await self._put_log(strangers, client, record)
                await bring_up_again(where, manifest.schemas)
                ledgers = Reconciliation(MongoLedgerStore(upload), pause=0)
                for drift in await ledgers.find_all_drift(tenant.tenant_id):
                    await ledgers.repair(drift)
                await record.add(
                    tenant.tenant_id, "tenant_import", archive_sha256=source, audit_head=manifest.audit_head
                )
                with suppress(TenantExists):  # Added by a run that ended here.
                    await MongoTenantStore(client["auth"]).add(tenant)
                await TenantVersions(redis).bump(tenant.tenant_id)
                await marker.clear()
        return manifest

    async def _check_absent(self, client: Client, tenant_id: str) -> None:
        """Raises BackupProblem where anything of the tenant is here."""
        gone = f"`pkgrepo tenant delete {tenant_id}` removes what there is"
        for database in DATABASES:
            for collection in await client[database].list_collection_names():
                if await client[database][collection].find_one({"tenant_id": tenant_id}, {"_id": True}):
                    raise BackupProblem(f"{tenant_id}: is here already, in {database}.{collection}; {gone}")
        folder = self.storage.folder / tenant_id
        if folder.exists() and any(folder.iterdir()):
            raise BackupProblem(f"{tenant_id}: has installers here already; {gone}")

    async def _bring_installers(
        self, archive: ArchiveReader, strangers: ArchiveValidator, upload: MongoDatabase
    ) -> None:
        """Copy each installer and then say that it is here."""
        self.row.copying(sum(entry.size for entry in strangers.manifest.files), 0)
        for installer, entry in strangers.installers():
            target = self.storage.path(installer)
            if has_size(target, installer.size):
                archive.skip(FILES, entry)
                self._advance(entry.size)
            else:
                await copy(archive.stream(FILES, entry), installer, target, self._advance)
            await _say_that_it_is_here(upload, installer)
        archive.end()

    async def _put_records(self, strangers: ArchiveValidator, client: Client) -> None:
        for name in SETTLED:
            if name not in {LOG, HEADS}:
                database, collection, _ = name.split(".")
                await restore_documents(client, database, collection, strangers.records(name))

    async def _put_log(self, strangers: ArchiveValidator, client: Client, record: Record) -> None:
        """Take over the audit log as it was sealed; under other keys seal its entries anew, after the same order."""
        tenant_id = strangers.manifest.tenant_id
        if AUDIT in self.other_keys:
            for document in strangers.records(LOG):
                link = parse_document(document)
                if link is None:
                    raise BackupProblem(f"{LOG}: has an entry that is none of an audit log")
                await record.audit.record(tenant_id, link.entry)
            return
        await restore_documents(client, "auth", "audit_log", strangers.records(LOG))
        for document in strangers.records(HEADS):
            note = SignedHead(Head(document["sequence"], document["hash"]), document["seal"])
            await record.store.save_head(tenant_id, note)
        try:
            await verify(record.store, record.signer, tenant_id)
        except ChainBroken as broken:
            raise BackupProblem(
                f"{tenant_id}: its audit log is not what was written ({broken}), and it is not imported; "
                f"`pkgrepo tenant delete {tenant_id}` removes what of it is here"
            ) from None

    def _advance(self, size: int) -> None:
        self._done += size
        self.row.at(self._done)


async def _say_that_it_is_here(upload: MongoDatabase, installer: Upload) -> None:
    name: Document = {"tenant_id": installer.tenant_id, "upload_id": installer.upload_id}
    document = {field: value for field, value in installer_document(installer).items() if field not in name}
    try:
        await upload["uploads"].update_one(name, {"$setOnInsert": document}, upsert=True)
    except DuplicateKeyError:
        raise BackupProblem(f"{installer.server_filename}: the archive has two records of the same file") from None
