"""The indexes of the database `auth`; it has no migrations."""

from auth_service.audit.store import AUDIT_INDEXES
from auth_service.backups.store import BACKUP_INDEXES
from auth_service.oidc.store import PROVIDER_INDEXES
from auth_service.tenants.store import TENANT_INDEXES
from auth_service.tokens.store import TOKEN_INDEXES
from auth_service.users.store import USER_INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema(
    [],
    {**TENANT_INDEXES, **USER_INDEXES, **TOKEN_INDEXES, **PROVIDER_INDEXES, **AUDIT_INDEXES, **BACKUP_INDEXES},
)
