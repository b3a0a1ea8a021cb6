"""The audit log: writes of administrators and operators, and sign-ins; entries are appended and never changed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from weakref import WeakValueDictionary

from auth_service.audit.store import (
    AuditBusy,
    AuditEntry,
    AuditSigner,
    ChainedEntry,
    Head,
    MongoAuditStore,
    Selection,
    SequenceConflict,
    to_audit_text,
)
from common.telemetry import log

ATTEMPTS = 100  # to append one entry; each lost attempt is another replica's entry


class Audit:
    """Writes and reads the logs."""

    def __init__(self, store: MongoAuditStore, signer: AuditSigner) -> None:
        self._store = store
        self._signer = signer
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def record(self, tenant_id: str, entry: AuditEntry) -> None:
        """Append an entry without its unchanged settings. An entry with a known id is not added.

        Callers choose some of its texts, such as names that are refused. Raises AuditBusy.
        """
        # The database stores milliseconds, and the signed value must equal the stored one.
        at = entry.at.replace(microsecond=entry.at.microsecond // 1000 * 1000)
        changes = {
            to_audit_text(name): (to_audit_text(before), to_audit_text(after))
            for name, (before, after) in entry.changes.items()
            if before != after
        }
        target = {to_audit_text(name): to_audit_text(text) for name, text in entry.target.items()}
        user, request_id = to_audit_text(entry.user), to_audit_text(entry.request_id)
        entry = replace(entry, at=at, user=user, request_id=request_id, target=target, changes=changes)
        # The lock serialises this process; only replicas compete for a number.
        async with self._locks.setdefault(tenant_id, asyncio.Lock()):
            for _ in range(ATTEMPTS):
                chained = self._signer.sign(tenant_id, await self.head(tenant_id), entry)
                try:
                    is_new = await self._store.add(chained)
                except SequenceConflict:
                    continue
                if not is_new:
                    return
                await self._store.save_head(tenant_id, self._signer.sign_head(tenant_id, chained.head))
                # Logs are stored elsewhere: their heads are evidence that nobody at the database can change.
                log.info("audit_recorded", tenant_id=tenant_id, head=str(chained.head))
                return
        raise AuditBusy

    async def head(self, tenant_id: str) -> Head:
        """The head that the next entry follows: the newest entry, or a later signed head whose entry is gone.

        A removed entry therefore leaves a gap for ever.
        """
        newest, signed = await asyncio.gather(self._store.newest(tenant_id), self._store.signed_head(tenant_id))
        if signed and signed.head.sequence > newest.sequence:
            if self._signer.verify_head(tenant_id, signed):
                return signed.head
            log.error("audit_note_altered", tenant_id=tenant_id)
        elif newest.sequence and (not signed or signed.head.sequence < newest.sequence):
            # The writer did not store the head. It is at most one entry behind: `verify` relies on that.
            await self._store.save_head(tenant_id, self._signer.sign_head(tenant_id, newest))
        return newest

    def select(self, tenant_id: str, selection: Selection) -> AsyncIterator[ChainedEntry | None]:
        """The selected entries; None for a document that someone made unreadable."""
        return self._store.select(tenant_id, selection)
