"""How the database `auth` came to look as it does."""

from functools import partial

from pydantic import SecretStr

from auth_service.audit.chain import Seals
from auth_service.audit.service import Audit
from auth_service.audit.store import AUDIT_INDEXES, MongoAuditStore
from auth_service.tenants.store import INDEXES
from common.mongo import MongoDatabase, long_timeout, make_indexes
from common.mongo.schema import Done, Migration, Schema


async def _chain(audit_key: SecretStr, database: MongoDatabase, done: Done) -> None:
    """Releases up to 0.1.0 kept the audit log in a collection without a chain."""
    await make_indexes(database, AUDIT_INDEXES)  # They decide about places in the chain.
    audit = Audit(MongoAuditStore(database), Seals(audit_key.get_secret_value()))
    with long_timeout():
        tenants = sorted(await database["audit"].distinct("tenant_id"))
    for tenant_id in tenants:
        await audit.take_in(tenant_id, done)


def schema(audit_key: SecretStr) -> Schema:
    """What the database is to be; the audit log is sealed under this key."""
    return Schema(
        [Migration("put into the chain what releases before it wrote into the audit log", partial(_chain, audit_key))],
        INDEXES,
    )
