"""Permissions, the roles that grant them, and patterns of packages, such as `Acme.*`, to which tokens are limited.

`gateway/operations.py` names the permission of each operation. In a pattern, `*` stands for any characters, everything
else for itself.
"""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
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
    CLIENTS_ENROLL = "clients:enroll"
    SETTINGS_READ = "settings:read"
    SETTINGS_WRITE = "settings:write"
    USERS_WRITE = "users:write"
    TOKENS_WRITE = "tokens:write"
    AUDIT_READ = "audit:read"


class Role(StrEnum):
    """A named set of permissions. Users and API tokens have one or more. Only tokens can be an enroller."""

    VIEWER = "viewer"
    PUBLISHER = "publisher"
    APPROVER = "approver"
    AUDITOR = "auditor"
    ENROLLER = "enroller"
    ADMINISTRATOR = "administrator"


_READS = frozenset({Permission.NONE, Permission.CATALOG_READ, Permission.CLIENTS_READ, Permission.SETTINGS_READ})
PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: _READS,
    Role.PUBLISHER: _READS | {Permission.CATALOG_WRITE},
    Role.APPROVER: _READS | {Permission.RELEASE_APPROVE},
    Role.AUDITOR: _READS | {Permission.AUDIT_READ},
    # Each machine of a fleet can read its token, so it can read nothing.
    Role.ENROLLER: frozenset({Permission.NONE, Permission.CLIENTS_ENROLL}),
    Role.ADMINISTRATOR: frozenset(Permission) - {Permission.CLIENTS_ENROLL},
}
# Permissions that only API tokens can have, each with the permission of the users who may give it.
FOR_TOKENS_ONLY = {Permission.CLIENTS_ENROLL: Permission.CLIENTS_WRITE}
USER_ROLES = tuple(role for role in Role if not PERMISSIONS[role] & FOR_TOKENS_ONLY.keys())
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


def parse_roles(texts: Iterable[str], *, for_token: bool = False) -> tuple[Role, ...]:
    """Different roles, in the order of `Role`. Raises InvalidField for an unknown role, one of tokens only, or none."""
    given = set(texts)
    roles = tuple(Role) if for_token else USER_ROLES
    if unknown := given - set(roles):
        names = ", ".join(roles)
        text = f"{min(unknown)!r} is no role; the roles are {names}"
        raise InvalidField("role", text, reason="unknown_role", role=min(unknown), names=names)
    if not given:
        raise InvalidField("role", "must have at least one role", reason="no_role")
    return tuple(role for role in Role if role in given)


def roles_of(document: Mapping[str, Any]) -> tuple[Role, ...]:
    """The roles of a stored user or a signed caller."""
    return tuple(map(Role, document["roles"]))


EVERY_PACKAGE = ("*",)  # the patterns of a caller who may change all packages
PATTERN_LIMIT = 128  # characters
MOST_PATTERNS = 30
TOTAL_LIMIT = 3500  # bytes of all patterns as JSON: they are part of internal tokens, which are one header of 8 KB
_NOT_IN_PATTERNS = frozenset('/\\:?"<>|,')


def parse_patterns(field: str, texts: Iterable[str]) -> tuple[str, ...]:
    """Different patterns, sorted. Raises InvalidField for none, or one that matches no package id."""
    patterns = tuple(sorted(set(texts)))
    if not patterns:
        raise InvalidField(field, "must have at least one pattern, such as Acme.*", reason="no_pattern")
    for pattern in patterns:
        if _NOT_IN_PATTERNS.intersection(pattern) or pattern in {".", ".."}:
            message = f"{pattern!r} is no package id and no pattern such as Acme.*"
            raise InvalidField(field, message, reason="not_a_pattern", pattern=pattern)
    if len(json.dumps(patterns)) > TOTAL_LIMIT:
        raise InvalidField(field, f"is longer than {TOTAL_LIMIT} characters", reason="too_long", limit=TOTAL_LIMIT)
    return patterns


def matches(patterns: tuple[str, ...], package_id: str) -> bool:
    """Whether one of the patterns matches a package id, in its letter case."""
    return patterns == EVERY_PACKAGE or _compiled(patterns).fullmatch(package_id) is not None


def regex_of(patterns: tuple[str, ...]) -> str:
    """The regular expression of the patterns, for a query of MongoDB."""
    return f"^(?:{_compiled(patterns).pattern})$"


@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # The translation never tries a `*` twice, so a match takes linear time. `[` would begin a set.
    return re.compile("|".join(translate(pattern.replace("[", "[[]")) for pattern in patterns))
