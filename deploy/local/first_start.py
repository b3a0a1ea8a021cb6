"""The first tenant, and its administrator."""

import secrets
from pathlib import Path

from auth_service.tenants.model import TenantExists
from common.tenants import Tenant
from deploy.local.folder import write_secret
from deploy.operator.audit import Record
from deploy.operator.operations import Operator

ADMINISTRATOR = "admin"


async def make_first_tenant(operator: Operator, record: Record, tenant_id: str, password_file: Path) -> str | None:
    """Make the tenant and its administrator; the password, kept in the file, where they were made just now.

    A password that the file has already is taken. A start that was cut short between the two is made up for: a tenant
    without users gets its administrator.
    """
    try:
        await operator.tenants.create(Tenant(tenant_id))
        await record.add(tenant_id, "tenant_create")
    except TenantExists:
        if await operator.users.list(tenant_id):
            return None
    password = _password_of(password_file)
    await operator.users.create(tenant_id, ADMINISTRATOR, password)
    await record.add(tenant_id, "user_create", username=ADMINISTRATOR)
    return password


def _password_of(file: Path) -> str:
    if not file.exists():
        write_secret(file, secrets.token_urlsafe(18))
    return file.read_text(encoding="utf-8").strip()
