"""How tenants, users and audit entries look on the wire."""

from typing import Any

from auth_service.model import AuditEntry, User
from auth_service.usage import Usage
from common.tenants import Tenant


def tenant(found: Tenant) -> dict[str, Any]:
    """The answer of the internal `find_tenant`."""
    return {
        "tenant_id": found.tenant_id,
        "client_authentication": found.client_authentication,
        "allowed_networks": found.allowed_networks,
        "storage_quota": found.storage_quota,
        "max_clients": found.max_clients,
        "version_key": found.version_key,
    }


def server_information(found: Tenant, usage: Usage, software_version: str) -> dict[str, Any]:
    return {
        "tenant_id": found.tenant_id,
        "software_version": software_version,
        "storage_used": usage.storage_used,
        "storage_reserved": usage.storage_reserved,
        "storage_quota": found.storage_quota,
        "damaged_installers": usage.damaged_installers,
        "clients": usage.clients,
        "max_clients": found.max_clients,
        "settings": {
            "client_authentication": found.client_authentication,
            "allowed_networks": found.allowed_networks,
            "version_key": found.version_key,
        },
    }


def user(found: User) -> dict[str, Any]:
    return {"username": found.username, "created_at": found.created_at}


def audit_entry(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.entry_id,
        "at": entry.at,
        "user": entry.user,
        "ip": entry.ip,
        "operation": entry.operation,
        "target": entry.target,
        "status": entry.status,
        "request_id": entry.request_id,
    }
