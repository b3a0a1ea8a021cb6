"""The audit log as operators' commands use it: each command is recorded."""

import getpass
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from auth_service.audit.chain import AuditSigner
from auth_service.audit.model import OPERATORS, AuditEntry, Selection
from auth_service.audit.service import Audit
from auth_service.audit.store import MongoAuditStore
from auth_service.tenants.service import Changes
from common.errors import Problem
from common.mongo import MongoError
from deploy.operator.schemas import open_database
from deploy.operator.stores import StoreAddresses

RECENT_ENTRIES = 100
OPERATOR_PREFIX = "operator/"  # before a name; the slash tells it from an administrator's


class NotRecorded(Exception):
    """The audit log rejected or lost the entry of a completed action; the text is one line and contains the entry."""


@dataclass(frozen=True)
class OperatorAudit:
    """The logs of all tenants and of the operators."""

    audit: Audit
    store: MongoAuditStore
    signer: AuditSigner

    async def add(self, tenant_id: str, operation: str, changes: Changes | None = None, /, **target: str) -> None:
        """Record an action of the operator, before or after it. Raises NotRecorded."""
        # "pkgrepo" is recorded instead of an administrator's address.
        entry = AuditEntry(operation, operator_name(), "pkgrepo", 200, uuid4().hex, target, changes or {})
        try:
            await self.audit.record(tenant_id, entry)
        except (MongoError, Problem):
            text = json.dumps({"tenant_id": tenant_id, **vars(entry)}, default=str)
            raise NotRecorded(f"the audit log does not answer and lacks this entry: {text}") from None

    async def recent_addresses(self, tenant_id: str) -> set[str]:
        """The addresses of the administrators in the newest entries of a tenant's log."""
        entries = self.audit.select(tenant_id, Selection(limit=RECENT_ENTRIES))
        return {entry.entry.ip async for entry in entries if entry}

    async def add_deletion(self, tenant_id: str) -> None:
        """Record the deletion of a tenant in the operators' log, with the head of the log that is deleted."""
        head = await self.store.newest(tenant_id)
        await self.add(OPERATORS, "tenant_delete", tenant_id=tenant_id, audit_head=str(head))


@asynccontextmanager
async def open_operator_audit(where: StoreAddresses) -> AsyncIterator[OperatorAudit]:
    """Open the audit log. Raises BadSetting if its key is unknown."""
    signer = AuditSigner(where.require_audit_key().get_secret_value())
    async with open_database(where.addresses.mongo_url, "auth") as database:
        store = MongoAuditStore(database)
        yield OperatorAudit(Audit(store, signer), store, signer)


def operator_name() -> str:
    """The user of this machine."""
    try:
        return f"{OPERATOR_PREFIX}{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name, as in a container
        return f"{OPERATOR_PREFIX}{os.getuid()}"
