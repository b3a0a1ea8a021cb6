"""The indexes and migrations of the database `auth`."""

from functools import partial

from pydantic import SecretStr

from auth_service.audit.chain import AuditSigner
from auth_service.audit.service import Audit
from auth_service.audit.store import AUDIT_INDEXES, MongoAuditStore
from auth_service.backups.store import BACKUP_INDEXES
from auth_service.oidc.store import PROVIDER_INDEXES
from auth_service.tenants.store import TENANT_INDEXES
from auth_service.tokens.store import TOKEN_INDEXES
from auth_service.users.store import USER_INDEXES
from common.auth.roles import ADMINISTRATOR
from common.mongo import MongoDatabase, long_timeout, make_indexes
from common.mongo.schema import Done, Migration, Schema, in_batches

INDEXES = {
    **TENANT_INDEXES,
    **USER_INDEXES,
    **TOKEN_INDEXES,
    **PROVIDER_INDEXES,
    **AUDIT_INDEXES,
    **BACKUP_INDEXES,
}


async def _chain(audit_key: SecretStr, database: MongoDatabase, done: Done) -> None:
    """Releases up to 0.1.0 kept the audit log in a collection without a chain."""
    await make_indexes(database, AUDIT_INDEXES)  # The chain needs its unique index.
    audit = Audit(MongoAuditStore(database), AuditSigner(audit_key.get_secret_value()))
    with long_timeout():
        tenants = sorted(await database["audit"].distinct("tenant_id"))
    for tenant_id in tenants:
        await audit.import_unchained(tenant_id, done)


async def _set_roles(database: MongoDatabase, done: Done) -> None:
    """Users of releases up to 0.1.0 have no roles, and all rights."""
    change = [{"$set": {"roles": list(ADMINISTRATOR)}}]
    await in_batches(database["users"], {"roles": {"$exists": False}}, change, done)


def schema(audit_key: SecretStr) -> Schema:
    """The schema of the database; `audit_key` signs the audit log."""
    name = "put into the chain what releases before it wrote into the audit log"
    roles = Migration("give the users of releases before it the role administrator", _set_roles)
    return Schema([Migration(name, partial(_chain, audit_key)), roles], INDEXES)
