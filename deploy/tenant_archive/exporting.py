"""One tenant as an archive, taken while everything runs.

In it is what the tenant has for good: what was halfway at that moment is left out, and so are unfinished uploads,
installers that no version has, sessions, and keys.
"""

from collections.abc import Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bson.raw_bson import RawBSONDocument

from auth_service.audit.chain import Head
from common.mongo import Document
from deploy.backup.copies import Altered, checked, installers_of
from deploy.backup.empty import claim_storage
from deploy.backup.key_prints import fingerprints
from deploy.backup.manifest import ArchiveManifest, BackupProblem, Entry
from deploy.backup.records import Client, DatabaseSnapshot, RecordFile, documents, snapshot_read
from deploy.operator.schemas import open_database, versions
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.publish.progress import Row
from deploy.tenant_archive.archive import FILES, RECORDS, ArchiveMismatch, ArchiveReader, ArchiveWriter, begun
from upload_service.model import InstallerMissing, Status
from upload_service.uploads.store import MongoUploadStore

ROUNDS = 3
# What is taken over as it is.
WHOLE = (
    ("clients", "clients"),
    ("clients", "entries"),
    ("clients", "groups"),
    ("auth", "audit_heads"),
    ("auth", "users"),
    ("auth", "tenants"),
)


class Gone(Exception):
    """An installer was deleted since the records were read."""


@dataclass
class Export:
    """The command at work; `resumed` is how many installers a run before had written."""

    path: Path
    tenant_id: str
    storage: Storage
    row: Row
    resumed: int = 0
    _done: int = 0

    async def run(self, where: StoreAddresses) -> ArchiveManifest:
        """Write the archive. Cut short, it goes on when it is run again. Raises BackupProblem and Unavailable."""
        async with open_database(where.addresses.mongo_url, "upload") as upload:
            await claim_storage(self.storage, upload)
            begin = self._begun_before()
            for _ in range(ROUNDS):
                manifest, position = begin or await self._begin(where, upload.client)
                self._done = 0
                self.row.copying(sum(entry.size for entry in manifest.files), 0)
                try:
                    await self._write(manifest, position, MongoUploadStore(upload))
                except Gone:
                    begin = None
                else:
                    return manifest
        raise BackupProblem(f"{self.tenant_id}: versions are deleted all the time; try when it is quiet")

    def _begun_before(self) -> tuple[ArchiveManifest, int] | None:
        """What a run before wrote, and where that ends being right."""
        if not begun(self.path).exists():
            return None
        with ArchiveReader(begun(self.path)) as reader:
            try:
                manifest, _ = reader.manifest()
                for entry in manifest.records:
                    for _ in reader.read(RECORDS, entry):
                        pass
            except BackupProblem:
                return None
            position = reader.position
            try:
                for entry in manifest.files:
                    for _ in reader.read(FILES, entry):
                        pass
                    position = reader.position
                    self.resumed += 1
            except ArchiveMismatch:
                pass  # So far it came.
        return (manifest, position) if manifest.tenant_id == self.tenant_id else None

    async def _begin(self, where: StoreAddresses, client: Client) -> tuple[ArchiveManifest, int]:
        """Begin the archive with a manifest and records."""
        self.resumed = 0
        reached = await versions(client["auth"])
        with TemporaryDirectory(dir=self.path.parent, prefix=f".{self.path.name}.") as name:
            folder = Path(name)
            records = await snapshot_read(client, lambda moment: self._read(moment, folder))
            installers = installers_of(folder)
            manifest = ArchiveManifest(
                made_at=datetime.now(UTC),
                keys=fingerprints(where),
                schemas=reached,
                records=records,
                tenant_id=self.tenant_id,
                audit_head=_head(folder),
                files=[Entry(name=one.server_filename, size=one.size, sha256=one.sha256) for one in installers],
            )
            with ArchiveWriter(self.path, 0) as archive:
                archive.manifest(manifest)
                for entry in records:
                    archive.header(RECORDS + entry.name, entry.size)
                    for block in _blocks(folder / entry.name):
                        archive.write(block)
                    archive.pad(entry.size)
                return manifest, archive.position

    async def _read(self, moment: DatabaseSnapshot, folder: Path) -> list[Entry]:
        """The tenant's records, but for what was halfway."""
        tenant: Document = {"tenant_id": self.tenant_id}
        entries: list[Entry] = []

        async def take(database: str, collection: str, query: Document, field: str = "", sort: str = "") -> set[str]:
            """Write what the query finds; what stands in this field of each."""
            seen: set[str] = set()

            def note(document: RawBSONDocument) -> None:
                file.take(document)
                seen.add(str(document.get(field)))

            with closing(RecordFile(folder, database, collection)) as file:
                await moment.each(database, collection, tenant | query, note, sort)
                entries.append(file.entry())
            return seen

        packages = await take("catalog", "packages", {"halfway": False}, "package_uid")
        active: Document = {"state": "active", "package_uid": {"$in": list(packages)}}
        uids = await take("catalog", "versions", active, "uid")
        uids |= await take("clients", "releases", {"status": "active"}, "uid")
        linked: Document = {"status": Status.LINKED, "version_uid": {"$in": list(uids)}}
        names = await take("upload", "uploads", linked, "server_filename")
        await take("catalog", "finished_uploads", {"server_filename": {"$in": list(names)}, "linked": True})
        await take("auth", "audit_log", {}, sort="sequence")
        for database, collection in WHOLE:
            await take(database, collection, {})
        return entries

    async def _write(self, manifest: ArchiveManifest, position: int, store: MongoUploadStore) -> None:
        """Write the installers that are not there yet."""
        with ArchiveWriter(self.path, position) as archive:
            for number, entry in enumerate(manifest.files):
                if number >= self.resumed:
                    await self._write_installer(archive, entry, store)
                else:
                    self._advance(entry.size)
            archive.finish()

    async def _write_installer(self, archive: ArchiveWriter, entry: Entry, store: MongoUploadStore) -> None:
        """Write an installer, also one that moves to another home meanwhile. Raises Gone."""
        position, done, looked_at = archive.position, self._done, None
        while True:
            upload = await store.find_installer(self.tenant_id, entry.name)
            if upload is None or upload.status is not Status.LINKED or upload.sha256 != entry.sha256:
                raise Gone
            if upload.storage is looked_at:
                raise BackupProblem(
                    f"{self.tenant_id}/{entry.name}: is missing or damaged; put the file right, or delete its version"
                )
            archive.go_back(position)
            archive.header(FILES + entry.name, entry.size)
            try:
                async with aclosing(
                    checked(self.storage.homes.of(upload).read(upload, 0, upload.size), upload)
                ) as good:
                    async for block in good:
                        archive.write(block)
                        self._advance(len(block))
            except (Altered, InstallerMissing):
                self._done, looked_at = done, upload.storage
            else:
                archive.pad(entry.size)
                return

    def _advance(self, size: int) -> None:
        self._done += size
        self.row.at(self._done)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            yield block


def _head(folder: Path) -> str:
    """How far the audit log reaches."""
    head = Head()
    for document in documents(folder / "auth.audit_log.bson"):
        head = Head(document["sequence"], document["hash"])
    return str(head)
