"""The audit log beside the services: operators' commands are on record there, and read it."""

import getpass
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from auth_service.audit.chain import AuditSigner
from auth_service.audit.model import AuditEntry
from auth_service.audit.service import OPERATORS, Audit
from auth_service.audit.store import MongoAuditStore
from auth_service.tenants.service import Changes
from common.errors import Problem
from common.mongo import MongoError
from deploy.operator.schemas import open_database
from deploy.operator.stores import StoreAddresses

FROM = "pkgrepo"  # stands where an administrator's address does


class NotRecorded(Exception):
    """Something was done that the audit log could not take; the text is one line and holds the entry."""


@dataclass(frozen=True)
class Record:
    """The logs of all tenants, and that of the operators."""

    audit: Audit
    store: MongoAuditStore
    signer: AuditSigner

    async def add(self, tenant_id: str, operation: str, changes: Changes | None = None, /, **target: str) -> None:
        """Say what the operator has done, or is about to. Raises NotRecorded."""
        entry = AuditEntry(operation, operator(), FROM, 200, uuid4().hex, target, changes or {})
        try:
            await self.audit.record(tenant_id, entry)
        except (MongoError, Problem):
            told = json.dumps({"tenant_id": tenant_id, **vars(entry)}, default=str)
            raise NotRecorded(f"the audit log does not answer and lacks this entry: {told}") from None

    async def add_deletion(self, tenant_id: str) -> None:
        """Say that a tenant is about to go, its log included; how far that reached stays with the operators'."""
        head = await self.store.newest(tenant_id)
        await self.add(OPERATORS, "tenant_delete", tenant_id=tenant_id, audit_head=str(head))


@asynccontextmanager
async def open_record(where: StoreAddresses) -> AsyncIterator[Record]:
    """Raises BadSetting where the key is not known."""
    audit_key = where.require_audit_key().get_secret_value()
    async with open_database(where.addresses.mongo_url, "auth") as database:
        store, signer = MongoAuditStore(database), AuditSigner(audit_key)
        yield Record(Audit(store, signer), store, signer)


def operator() -> str:
    """Who runs the command on this machine; with a slash, which no administrator's name has."""
    try:
        return f"operator/{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name, as in a container
        return f"operator/{os.getuid()}"
