"""The first tenant and its administrator."""

from pathlib import Path

from auth_service.tenants.model import TenantExists
from common.tenants import Tenant
from deploy.local.folder import generated_secret
from deploy.operator.audit import OperatorAudit
from deploy.operator.tenants import Operator

ADMINISTRATOR = "admin"


async def create_first_tenant(
    operator: Operator, audit: OperatorAudit, tenant_id: str, password_file: Path
) -> str | None:
    """Create the tenant and its administrator if they do not exist; the password if the administrator is new.

    The password is read from the file, or generated and written to it. A tenant without users, of an interrupted start,
    gets its administrator.
    """
    try:
        await operator.tenants.create(Tenant(tenant_id))
        await audit.add(tenant_id, "tenant_create")
    except TenantExists:
        if await operator.users.list(tenant_id):
            return None
    password = generated_secret(password_file, 18).read_text(encoding="utf-8").strip()
    await operator.users.create(tenant_id, ADMINISTRATOR, password)
    await audit.add(tenant_id, "user_create", username=ADMINISTRATOR)
    return password
