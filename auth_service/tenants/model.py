"""The errors of tenants; `common.tenants` has the tenant itself."""

from common.errors import Conflict, InvalidField, NotFound


class TenantNotFound(NotFound):
    code = "tenant_not_found"
    text = "There is no tenant {tenant_id!r}."


class TenantExists(Conflict):
    code = "tenant_exists"
    text = "There is a tenant {tenant_id!r} already."


class WouldLockOutCaller(InvalidField):
    code = "shuts_out_caller"

    def __init__(self, ip: str) -> None:
        super().__init__("allowed_networks", f"this list would shut you out: {ip} is not on it")
