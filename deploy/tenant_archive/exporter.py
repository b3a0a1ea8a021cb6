"""Exports one tenant into an archive while the services run.

The archive leaves out unfinished work and uploads, installers without a version, sessions, API tokens, and keys. It
has no company login, which has a secret, and no users of one.
"""

from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from auth_service.audit.model import Head
from auth_service.users.store import HAS_PASSWORD
from catalog_service.releases.store import UNREMEMBERED
from common.mongo import Document
from deploy.backup.installers import InstallerAltered, installers_of, verify_blocks
from deploy.backup.manifest import ArchiveManifest, BackupProblem, Entry, Passphrase, key_fingerprints
from deploy.backup.records import Client, DatabaseSnapshot, documents, snapshot_read
from deploy.backup.target import claim_storage
from deploy.operator.schemas import open_database, versions
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.tenant_archive.archive import FILES, RECORDS, ArchiveReader, ArchiveWriter, part_path
from deploy.terminal import FileProgress
from upload_service.model import InstallerMissing, Status
from upload_service.uploads.store import MongoUploadStore

ATTEMPTS = 3
UNFILTERED = {
    "catalog": ("package_signers", "release_policies"),
    "clients": ("clients", "entries", "groups"),
    "auth": ("audit_heads", "tenants"),
}


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
            unfinished, store = await self._read_unfinished(), MongoUploadStore(upload)
            for _ in range(ATTEMPTS):
                manifest, position = unfinished or await self._begin(where, upload.client)
                sizes = [entry.size for entry in manifest.files]
                self.progress.start("copying", sum(sizes))
                self.progress.advance(sum(sizes[: self.resumed]))
                with suppress(InstallerDeleted), ArchiveWriter(self.path, position) as archive:
                    for entry in manifest.files[self.resumed :]:
                        await self._write_installer(archive, entry, store)
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
        for database, collections in UNFILTERED.items():
            for collection in collections:
                await export(database, collection, {})
        return entries

    async def _write_installer(self, archive: ArchiveWriter, entry: Entry, store: MongoUploadStore) -> None:
        """Write an installer, also if it moves to another storage meanwhile. Raises InstallerDeleted."""
        position, done, failed_home = archive.position, self.progress.done, None
        while True:
            upload = await store.find_installer(self.tenant_id, entry.name)
            if upload is None or upload.status is not Status.LINKED or upload.sha256 != entry.sha256:
                raise InstallerDeleted
            if upload.storage is failed_home:
                raise BackupProblem(
                    f"{self.tenant_id}/{entry.name}: is missing or damaged; repair the file, or delete its version"
                )
            archive.go_back(position)
            archive.header(FILES + entry.name, entry.size)
            blocks = self.storage.backends.of(upload).read(upload, 0, upload.size)
            try:
                async with aclosing(verify_blocks(blocks, upload)) as verified:
                    async for block in verified:
                        archive.write(block)
                        self.progress.advance(len(block))
            except (InstallerAltered, InstallerMissing):
                self.progress.update(done)
                failed_home = upload.storage
            else:
                archive.pad(entry.size)
                return


def _audit_head(folder: Path) -> str:
    head = Head()
    for document in documents(folder / "auth.audit_log.bson"):
        head = Head(document["sequence"], document["hash"])
    return str(head)
