"""Restores one deleted package from a backup while the services run: installers first, the package last.

No version is offered more widely than before the deletion. A version keeps the stage of the backup. It is withdrawn if
the audit log shows that it was stopped or deleted after the backup, or if the log does not continue the backup's.
"""

import hashlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import bson
from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo.errors import DuplicateKeyError

from auth_service.audit.store import AuditEntry, Selection
from catalog_service.catalog.revision_store import MongoRevisions
from catalog_service.model.packages import PackageExists, id_key
from catalog_service.model.releases import Reason, VersionRelease, release_document, version_release_of
from catalog_service.releases.transitions import roll_back
from common.errors import StorageExceeded
from common.mongo import Document, MongoDatabase, long_timeout
from common.redis import TenantVersions, open_redis
from common.tenants import Tenant
from deploy.backup.folder import BackupFolder, StoredBackup
from deploy.backup.installers import CopyOutcome, installer_document, installers_of, store_copy
from deploy.backup.records import DECODED, BackupProblem, Client, documents
from deploy.backup.restorer import RestoreMarker, claim_storage
from deploy.operator.stores import Storage, StoreAddresses, migrate_imported, open_database
from deploy.operator.tenants import OperatorAudit, open_operator, open_operator_audit, operator_name
from deploy.terminal import FileProgress
from upload_service.downloads.store import MongoDownloadStore
from upload_service.model import Status, Upload, suffix_of
from upload_service.quota.store import MongoQuotaStore
from upload_service.storage.part_files import PartFiles
from upload_service.uploads.claims import Removal
from upload_service.uploads.store import MongoUploadStore

PACKAGES, VERSIONS = "catalog.packages.bson", "catalog.versions.bson"
COUNTS, LOG = "upload.download_counts.bson", "auth.audit_log.bson"
STOPS = ("hold_version", "roll_back_version", "pause_version", "retention", "delete_package_version")
WITHDRAWN = "Stopped or deleted after the backup {backup}."


@dataclass
class PackageRestorer:
    """One run. Afterwards `versions` has the restored ones, `lacking` the installers that are not in the backup."""

    folder: BackupFolder
    backup: StoredBackup
    tenant_id: str
    package_id: str
    storage: Storage
    progress: FileProgress
    without_damaged: bool = False
    without_seal: bool = False
    is_active: bool = True
    versions: list[VersionRelease] = field(default_factory=list)
    lacking: dict[str, CopyOutcome] = field(default_factory=dict)

    async def run(self, where: StoreAddresses) -> None:
        """Restore the package. An interrupted run resumes when it is run again.

        Raises BackupProblem, PackageExists, StorageExceeded, TenantNotFound and Unavailable.
        """
        self.folder.verify(self.backup, where, without_seal=self.without_seal)
        package = self._package()
        records = {document["uid"]: document for document in self._documents(VERSIONS) if _is_of(document, package)}
        async with open_operator(where.addresses) as operator:
            tenant = await operator.tenants.find(self.tenant_id)
        async with (
            open_database(where.addresses.mongo_url, "upload") as upload,
            open_operator_audit(where) as audit,
            open_redis(where.addresses.redis_url) as redis,
        ):
            await claim_storage(self.storage, upload)
            catalog: MongoDatabase = upload.client["catalog"]
            marker = RestoreMarker(upload.client, f"{self.tenant_id}/{self.package_id}", self.backup.name)
            is_open = await marker.is_set()
            if is_open and marker.is_committed:  # The package may have been deleted again since.
                is_open = await catalog["packages"].find_one(_key_of(package), {"_id": True}) is not None
            if not is_open:
                await self._require_absent(catalog, upload, [*records])
                await marker.set()
            stopped = await self._stopped_since(audit, [*records])
            installers = await self._restore_installers(upload, tenant, records, marker)
            for uid, document in records.items():
                if document["server_filename"] and uid not in installers:
                    continue  # Its installer is lacking.
                self.versions.append(_restored(document, installers.get(uid), self.backup.name, uid in stopped))
            await self._restore_records(upload, installers)
            package["active"] = self.is_active = package["active"] and self.is_active
            seal = {"seal": "not verified"} if self.without_seal else {}
            target = {"package_id": self.package_id, "backup": self.backup.name, "versions": str(len(self.versions))}
            await audit.add(self.tenant_id, "package_restore", **target, **seal)
            revisions = MongoRevisions(catalog, TenantVersions(redis).invalidate_during)
            try:
                async with revisions.record_change(self.tenant_id, self.package_id):
                    await self._add_package(catalog, package, records, marker)
            except PackageExists:  # Somebody added one while the installers were copied.
                await self._remove_installers(upload, installers)
                await marker.clear()
                raise
            await migrate_imported(where, self.backup.manifest.schemas)
            await marker.clear()

    def _package(self) -> Document:
        for document in self._documents(PACKAGES):
            if document["package_id"] == self.package_id and not document["halfway"]:
                return document
        raise BackupProblem(
            f"{self.backup.path}: has no package {self.package_id} of the tenant {self.tenant_id}; "
            "choose another backup with --at"
        )

    def _documents(self, name: str) -> Iterator[Document]:
        """The tenant's documents in a file of the backup."""
        path = self.backup.path / name
        for raw in documents(path) if path.exists() else ():
            if raw.get("tenant_id") == self.tenant_id:
                yield bson.decode(raw.raw, DECODED)

    async def _require_absent(self, catalog: MongoDatabase, upload: MongoDatabase, uids: Sequence[str]) -> None:
        """Raise PackageExists, or BackupProblem while the deletion is not finished."""
        key = {"tenant_id": self.tenant_id, "id_key": id_key(self.package_id)}
        package = await catalog["packages"].find_one(key)
        if package is not None and not package["halfway"]:
            raise PackageExists(package_id=package["package_id"])
        of_package = {"tenant_id": self.tenant_id, "$or": [{"package_id": self.package_id}, {"uid": {"$in": uids}}]}
        version = await catalog["versions"].find_one(of_package, {"_id": True})
        if package or version or await MongoUploadStore(upload).find_linked(self.tenant_id, uids):
            raise BackupProblem(
                f"{self.package_id}: its deletion is not finished yet, or an interrupted restore from another backup; "
                "try again in a minute, or run that restore again with its --at"
            )

    async def _stopped_since(self, audit: OperatorAudit, uids: Collection[str]) -> Collection[str]:
        """The versions that were stopped or deleted after the backup; all, if the audit log does not tell.

        Sets `is_active` to False if the package was set inactive after the backup.
        """
        last = max((entry["sequence"] for entry in self._documents(LOG)), default=0)
        known = {entry["sequence"]: entry["hash"] for entry in self._documents(LOG) if entry["sequence"] == last}
        same = [entry async for entry in audit.audit.select(self.tenant_id, Selection(before=last + 1, limit=1))]
        if {entry.sequence: entry.hash for entry in same if entry} != known:
            return uids
        stopped: set[str] = set()
        for operation in STOPS:
            async for entry in _entries_after(audit, self.tenant_id, operation, last):
                named = f"{entry.target.get('uid', '')},{entry.target.get('uids', '')}"
                # A list that was too long for the log ends with the number of the others.
                stopped |= {uid for uid in uids if uid in named or named.endswith(" more")}
        async for entry in _entries_after(audit, self.tenant_id, "set_package_active", last):
            _, active = entry.changes.get("active", ("", entry.target.get("active", "")))
            if (entry.target.get("package_id"), active) == (self.package_id, "0"):
                self.is_active = False
        return stopped

    async def _restore_installers(
        self, upload: MongoDatabase, tenant: Tenant, records: Mapping[str, Document], marker: RestoreMarker
    ) -> Mapping[str, Upload]:
        """Copy the installers of these versions, and return them by version. Each gets a new id and name.

        The quota remembers the ids of deleted uploads, and would not charge them again.
        """
        quota = MongoQuotaStore(upload)
        pairs = [
            (old, _renamed(old, marker.run_id, self.storage))
            for old in installers_of(self.backup.path)
            if (old.tenant_id, old.status) == (self.tenant_id, Status.LINKED) and old.version_uid in records
        ]
        missing = [(old, new) for old, new in pairs if not await _is_recorded(upload, new)]
        has_stored_nothing = len(missing) == len(pairs)
        await self._reserve(quota, tenant, [new for _, new in missing], marker if has_stored_nothing else None)
        self.progress.start("copying", sum(new.size for _, new in missing))
        names = {document["server_filename"] for document in records.values()} - {""}
        lacking = dict.fromkeys(names - {old.server_filename for old, _ in pairs}, CopyOutcome.MISSING)
        for old, new in missing:
            source = self.folder.file(old.tenant_id, old.server_filename)
            outcome = await store_copy(source, new, self.storage, self.progress)
            if outcome is not CopyOutcome.COPIED:
                lacking[old.server_filename] = outcome
        self.lacking = {f"{self.tenant_id}/{name}": outcome for name, outcome in sorted(lacking.items())}
        if lacking and not self.without_damaged:
            if has_stored_nothing:
                await _give_back(quota, [new for _, new in missing], marker)
            raise BackupProblem(
                f"the backup is damaged: {', '.join(self.lacking)}; repair the files in {self.folder.path / 'files'} "
                "and run this again, choose another backup with --at, or add --without-damaged to leave them out"
            )
        for old, new in missing:
            if old.server_filename in lacking:
                await quota.release(new)
        return {old.version_uid: new for old, new in pairs if old.server_filename not in lacking}

    async def _reserve(
        self, quota: MongoQuotaStore, tenant: Tenant, uploads: Sequence[Upload], marker: RestoreMarker | None
    ) -> None:
        """Reserve the storage of all installers. Raises StorageExceeded.

        A run with a `marker` ends then, and reserves nothing. Another one resumes what it has stored already.
        """
        for number, upload in enumerate(uploads):
            if not await quota.reserve(upload, upload.size, tenant.storage_quota):
                if marker:
                    await _give_back(quota, uploads[:number], marker)
                size = sum(each.size for each in uploads)
                raise StorageExceeded(
                    f"The installers of {self.package_id} have {size} bytes, which do not fit in the storage of "
                    f"{self.tenant_id}. Raise its quota with `pkgrepo tenant edit`, and run this again."
                )

    async def _restore_records(self, upload: MongoDatabase, installers: Mapping[str, Upload]) -> None:
        """Add the records of the installers, charge the quota, and add the download counts."""
        quota = MongoQuotaStore(upload)
        withheld = {version.uid: version.is_withheld for version in self.versions}
        for uid, installer in installers.items():
            key = {"tenant_id": self.tenant_id, "upload_id": installer.upload_id}
            fields = {
                **installer_document(replace(installer, is_withheld=withheld[uid])),
                "home": self.storage.chosen,
                "uploader": installer.uploader,
            }
            await upload["uploads"].update_one(key, {"$setOnInsert": fields}, upsert=True)
            await quota.charge(installer, None)
        uids = set(withheld)
        for row in self._documents(COUNTS):
            if row["version_uid"] in uids:
                key = {name: row[name] for name in ("tenant_id", "version_uid", "day")}
                await upload["download_counts"].update_one(key, {"$max": {"count": row["count"]}}, upsert=True)

    async def _remove_installers(self, upload: MongoDatabase, installers: Mapping[str, Upload]) -> None:
        """Remove what this run has stored, and release its storage."""
        parts, quota = PartFiles(self.storage.folder), MongoQuotaStore(upload)
        removal = Removal(MongoUploadStore(upload), quota, parts, self.storage.backends)
        await removal.remove_or_postpone([*installers.values()])
        await MongoDownloadStore(upload).delete(self.tenant_id, [*installers])

    async def _add_package(
        self, catalog: MongoDatabase, package: Document, records: Mapping[str, Document], marker: RestoreMarker
    ) -> None:
        """Add the package and its versions at once. Raises PackageExists."""
        rows = [_version_document(records[version.uid], version) for version in self.versions]

        async def add(session: AsyncIOMotorClientSession) -> None:
            if await catalog["packages"].find_one(_key_of(package), {"_id": True}, session=session):
                return  # An earlier run was interrupted after this.
            await catalog["packages"].insert_one(package, session=session)
            if rows:
                await catalog["versions"].insert_many(rows, session=session)
            await marker.mark_committed(session)

        client: Client = catalog.client
        with long_timeout():
            async with await client.start_session() as session:
                try:
                    await session.with_transaction(add)
                except DuplicateKeyError:
                    raise PackageExists(package_id=self.package_id) from None


def _key_of(package: Document) -> Document:
    return {name: package[name] for name in ("tenant_id", "package_id", "package_uid")}


def _is_of(version: Document, package: Document) -> bool:
    return (version["package_uid"], version["state"]) == (package["package_uid"], "active")


async def _entries_after(
    audit: OperatorAudit, tenant_id: str, operation: str, sequence: int
) -> AsyncIterator[AuditEntry]:
    """The entries of an operation after a number, without refused ones. An operation that failed may have an effect."""
    async for chained in audit.audit.select(tenant_id, Selection(operations=(operation,))):
        if chained is None:
            continue
        if chained.sequence <= sequence:
            return
        if not 400 <= chained.entry.status < 500:
            yield chained.entry


def _renamed(old: Upload, run_id: str, storage: Storage) -> Upload:
    """The installer under an id and a name of this run; its X-File-ID may be in use again."""
    upload_id = hashlib.sha256(f"{run_id}/{old.upload_id}".encode()).hexdigest()[:32]
    return replace(
        old,
        upload_id=upload_id,
        file_id=upload_id,
        original_file_id="",
        server_filename=f"{upload_id}{suffix_of(old.server_filename)}",
        storage=storage.chosen,
    )


async def _is_recorded(upload: MongoDatabase, installer: Upload) -> bool:
    key = {"tenant_id": installer.tenant_id, "upload_id": installer.upload_id}
    return bool(await upload["uploads"].count_documents(key))


async def _give_back(quota: MongoQuotaStore, uploads: Sequence[Upload], marker: RestoreMarker) -> None:
    """End a run that has stored nothing. The next one uses other ids, because the quota remembers these."""
    for upload in uploads:
        await quota.release(upload)
    await marker.clear()


def _restored(document: Document, installer: Upload | None, backup: str, is_stopped: bool) -> VersionRelease:
    """A version as it is offered after the restore."""
    now, name = datetime.now(UTC), installer.server_filename if installer else ""
    times = {"published_at": document.get("changed_at") or now, "now": now}
    restored = version_release_of({**document, **times, "server_filename": name})
    if is_stopped:
        restored = roll_back(restored, operator_name(), Reason.given(WITHDRAWN.format(backup=backup)))
    # The background loop tells upload_service of the new file, and looks at the gates.
    fence, is_untold = restored.release.fence + 1, not restored.is_external
    release = replace(restored.release, fence=fence, is_untold=is_untold, in_flight=restored.is_in_flight, due=now)
    return replace(restored, release=release)


def _version_document(document: Document, version: VersionRelease) -> Document:
    release = {"release": release_document(version.release)}
    stage = {"stage": {"rings": list(version.stage.rings), "status": version.stage.status}} if version.stage else {}
    return {**document, **release, **stage, "server_filename": version.server_filename}
