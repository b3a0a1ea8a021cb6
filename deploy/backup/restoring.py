"""A backup put back: installers first, then records, tenants last, so that nobody is let in before all is there.

The backup may have been where others can write. Its seal tells whether anybody changed it. Names of files are checked
in any case, because they lead to places on this machine.
"""

import hashlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pymongo.errors import DuplicateKeyError

from auth_service.audit.service import OPERATORS
from common.caching.tenant_version import TenantVersions
from common.mongo import MongoDatabase, long_timeout
from common.redis import open_redis
from deploy.backup.copies import Altered, Outcome, copy, installers_of, is_whole
from deploy.backup.empty import IDENTITY, check_databases, check_homes, claim_storage, no_service_connected
from deploy.backup.folder import BackupFolder, StoredBackup, check_records
from deploy.backup.key_prints import AUDIT, CLIENT_TOKEN, Fingerprints, fingerprints, missing_keys
from deploy.backup.manifest import RECORDS, BackupManifest, BackupProblem, Entry
from deploy.backup.marker import EVERYTHING, Marker
from deploy.backup.records import DATABASES, Client, documents, is_plain_file, restore_documents
from deploy.operator.audit import open_record
from deploy.operator.operations import open_operator
from deploy.operator.schemas import bring_up, check_known, open_database
from deploy.operator.storage import Storage
from deploy.operator.stores import StoreAddresses
from deploy.publish.progress import Row
from upload_service.model import InstallerMissing, Status, StorageKind, Upload
from upload_service.quota.ledger_store import MongoLedgerStore
from upload_service.quota.reconciliation import Reconciliation
from upload_service.storage.filesystem import read_blocks

WITHOUT = {
    AUDIT: "`pkgrepo audit verify` finds every entry of before altered, until the old key stands behind the new one",
    CLIENT_TOKEN: "no client's token is known, until the old key stands behind the new one",
}
SHOWN = 20  # names of damaged files in one line
# What tells of work that was under way, and of where a file was.
PASSING = dict.fromkeys(("left", "moving_by", "moving_until", "checking_until"), "")
UNDER_WAY = timedelta(days=1)  # before a backup; what was announced since then the broker may have had still


@dataclass
class Restoration:
    """The command at work; `quiet` says afterwards whether it could see that no service runs."""

    folder: BackupFolder
    backup: StoredBackup
    storage: Storage
    row: Row
    without_damaged: bool = False
    other_keys: bool = False
    without_seal: bool = False
    quiet: bool = False
    lacking: dict[str, Outcome] = field(default_factory=dict)
    _done: int = 0

    @property
    def manifest(self) -> BackupManifest:
        return self.backup.manifest

    async def run(self, where: StoreAddresses) -> None:
        """Put everything back. Cut short, it goes on when it is run again. Raises BackupProblem and Unavailable."""
        check_known(self.manifest.schemas, "the backup's ")
        if not self.other_keys:
            self._check_keys(fingerprints(where))
        if not self.without_seal:
            self._check_seal(where)
        records = self.folder.records(self.backup.name)
        check_records(records, self.manifest.records)
        async with AsyncExitStack() as stack:
            upload = await stack.enter_async_context(open_database(where.addresses.mongo_url, "upload"))
            marker = Marker(
                upload.client, EVERYTHING, hashlib.sha256(self.manifest.model_dump_json().encode()).hexdigest()
            )
            self.quiet = await no_service_connected(upload.client)
            if not await marker.is_set():
                await check_databases(upload.client)
                await check_homes(self.storage)
                await claim_storage(self.storage, upload)
                await marker.set()
            await self._bring_installers(records)
            await self._put_records(upload.client, records)
            try:
                await bring_up(where, self.manifest.schemas)
            except DuplicateKeyError as error:
                fields = ", ".join((error.details or {}).get("keyPattern", {}))
                raise BackupProblem(
                    f"the backup has two records with the same {fields}, where one may be. Empty the databases and the "
                    "storage, and choose another backup with --at"
                ) from None
            await self._settle(upload)
            await _forget_sessions(where)
            async with open_record(where) as record:
                seal = {"seal": "not verified"} if self.without_seal else {}
                await record.add(OPERATORS, "restore", backup=self.backup.name, **seal)
            await marker.clear()

    def _check_keys(self, now: Fingerprints) -> None:
        if missing := missing_keys(self.manifest.keys, now):
            told = "; ".join(f"without its {key} {WITHOUT[key]}" for key in missing)
            raise BackupProblem(
                f"the backup was made under other keys: {told}. Bring its keys here: its folder of secrets, or `keys` "
                "and `audit-key` of its data folder. If they are lost, say --other-keys"
            )

    def _check_seal(self, where: StoreAddresses) -> None:
        """Raises BackupProblem where the backup has no seal, or one that does not match."""
        if self.backup.is_sealed(where.require_audit_key()):
            return
        path, folder = self.folder.path / self.backup.name, self.folder.path
        if not self.backup.seal:
            raise BackupProblem(
                f"{path}: has no seal. An earlier version made it, or somebody removed the seal. Choose another backup "
                f"with --at. Only if nobody but you could write to {folder}, add --without-seal"
            )
        if AUDIT in missing_keys(self.manifest.keys, fingerprints(where)):
            raise BackupProblem(
                f"{path}: says that its seal is of another AUDIT_KEY. If you never changed that key, somebody changed "
                "the backup. Else put the old AUDIT_KEY behind the one here, after a space, and run this again. If it "
                f"is lost, and nobody but you could write to {folder}, add --without-seal"
            )
        raise BackupProblem(
            f"{path}: was changed or renamed after it was made, because its seal does not match. Do not restore it. "
            f"Choose another backup with --at, and find out who can write to {folder}"
        )

    async def _bring_installers(self, records: Path) -> None:
        self.row.copying(sum(upload.size for upload in installers_of(records)), 0)
        known = set(self.manifest.lacking)
        for upload in installers_of(records):
            name = f"{upload.tenant_id}/{upload.server_filename}"
            outcome = Outcome.MISSING if name in known else await self._bring(upload)
            if outcome is not Outcome.COPIED:
                self.lacking[name] = outcome
        damaged = sorted(self.lacking.keys() - known)
        if damaged and not self.without_damaged:
            more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
            raise BackupProblem(
                f"the backup is damaged: {', '.join(damaged[:SHOWN])}{more}; put them right in "
                f"{self.folder.path / 'files'} and run this again, or say --without-damaged"
            )

    async def _bring(self, upload: Upload) -> Outcome:
        """Copy an installer to the home that the settings choose, where it is not there already."""
        home = self.storage.homes.get(self.storage.chosen)
        source = self.folder.file(upload.tenant_id, upload.server_filename)
        if await home.size(upload) == upload.size:
            self._advance(upload.size)
            return Outcome.COPIED
        if not is_plain_file(source):
            return Outcome.MISSING
        try:
            if self.storage.chosen is StorageKind.FOLDER:
                blocks = read_blocks(source, 0, upload.size)
                await copy(blocks, upload, self.storage.path(upload), self._advance)
            elif await is_whole(source, upload):
                await home.put(upload, source)
                self._advance(upload.size)
            else:
                return Outcome.ALTERED
        except InstallerMissing:
            return Outcome.MISSING
        except Altered:
            return Outcome.ALTERED
        return Outcome.COPIED

    async def _put_records(self, client: Client, records: Path) -> None:
        for database in DATABASES:
            for entry in sorted(self.manifest.records, key=_tenants_last):
                found = RECORDS.fullmatch(entry.name)
                if found and found[1] == database and (found[1], found[2]) != IDENTITY:
                    await restore_documents(client, database, found[2], documents(records / entry.name))

    async def _settle(self, upload: MongoDatabase) -> None:
        """Say where the installers are now, and what tenants store without the transfers that are not kept.

        The last uploads are announced again: hearing of one twice changes nothing. Those that wait for a version wait
        as long from now on as if they had just come, however old the backup is.
        """
        # Of transfers that were just being given up nobody has heard, nor is to.
        last = {"announced": True, "updated_at": {"$gt": self.manifest.made_at - UNDER_WAY}}
        just_come = {"announced": False, "updated_at": datetime.now(UTC)}
        with long_timeout():
            await upload["uploads"].update_many({}, {"$set": {"home": self.storage.chosen}, "$unset": PASSING})
            await upload["uploads"].update_many(last, {"$set": {"announced": False}})
            await upload["uploads"].update_many({"status": Status.COMPLETE}, {"$set": just_come})
        ledgers = Reconciliation(MongoLedgerStore(upload), pause=0)
        for drift in await ledgers.find_all_drift():
            await ledgers.repair(drift)

    def _advance(self, size: int) -> None:
        self._done += size
        self.row.at(self._done)


def _tenants_last(entry: Entry) -> bool:
    return entry.name == "auth.tenants.bson"


async def _forget_sessions(where: StoreAddresses) -> None:
    """Let nobody be signed in from before, and no gateway remember anything."""
    async with open_operator(where.addresses) as operator, open_redis(where.addresses.redis_url) as redis:
        await operator.sessions.close_every_tenant()
        stamps = TenantVersions(redis)
        for tenant in await operator.tenants.list():
            await stamps.bump(tenant.tenant_id)
