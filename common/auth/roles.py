"""Permissions and the roles that grant them. `gateway/operations.py` names the permission of each operation."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from common.errors import Forbidden, InvalidField


class Permission(StrEnum):
    """The permission that an operation needs."""

    NONE = "none"  # nothing: whoever the operation's `Access` admits
    CATALOG_READ = "catalog:read"
    CATALOG_WRITE = "catalog:write"
    RELEASE_APPROVE = "release:approve"
    CLIENTS_READ = "clients:read"
    CLIENTS_WRITE = "clients:write"
    SETTINGS_READ = "settings:read"
    SETTINGS_WRITE = "settings:write"
    USERS_WRITE = "users:write"
    TOKENS_WRITE = "tokens:write"
    AUDIT_READ = "audit:read"


class Role(StrEnum):
    """A named set of permissions. Users and API tokens have one or more."""

    VIEWER = "viewer"
    PUBLISHER = "publisher"
    APPROVER = "approver"
    AUDITOR = "auditor"
    ADMINISTRATOR = "administrator"


_READS = frozenset({Permission.NONE, Permission.CATALOG_READ, Permission.CLIENTS_READ, Permission.SETTINGS_READ})
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: _READS,
    Role.PUBLISHER: _READS | {Permission.CATALOG_WRITE},
    Role.APPROVER: _READS | {Permission.RELEASE_APPROVE},
    Role.AUDITOR: _READS | {Permission.AUDIT_READ},
    Role.ADMINISTRATOR: frozenset(Permission),
}
ADMINISTRATOR = (Role.ADMINISTRATOR,)


class PermissionMissing(Forbidden):
    code = "permission_missing"
    text = "You need the permission {permission}. An administrator can give you a role that has it."


def permissions_of(roles: Iterable[Role]) -> frozenset[Permission]:
    """The permissions of all these roles together."""
    return frozenset[Permission]().union(*(PERMISSIONS[role] for role in roles))


def has_permission(roles: Iterable[Role], permission: Permission) -> bool:
    """Whether one of the roles has the permission."""
    return any(permission in PERMISSIONS[role] for role in roles)


def parse_roles(texts: Iterable[str]) -> tuple[Role, ...]:
    """Different roles, in the order of `Role`. Raises InvalidField for an unknown role or none."""
    given = set(texts)
    if unknown := given - set(Role):
        names = ", ".join(Role)
        text = f"{min(unknown)!r} is no role; the roles are {names}"
        raise InvalidField("role", text, reason="unknown_role", role=min(unknown), names=names)
    if not given:
        raise InvalidField("role", "must have at least one role", reason="no_role")
    return tuple(role for role in Role if role in given)


def roles_of(document: Mapping[str, Any]) -> tuple[Role, ...]:
    """The roles of a stored user or a signed caller."""
    return tuple(map(Role, document["roles"]))
