"""The app of Microsoft Entra ID whose access tokens a tenant accepts from winget."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from common.errors import InvalidField

MAX_DIRECTORIES = 20
MAX_RINGS = 100
VALUE_LIMIT = 128  # characters of an app role, or of a group's id
_RESOURCE = re.compile(r"(?:api|https)://[!-~]{1,250}")
_SCOPE = re.compile(r"[A-Za-z0-9._-]{1,120}")
_RING = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")


@dataclass(frozen=True)
class EntraApp:
    """The app, as the operator set it.

    `directories` are the ids of the organizations whose users may sign in. `resource` is the app's Application ID URI,
    which version 1 tokens name; version 2 tokens name `client_id`. `rings` has pairs of an app role or group id, and
    the client group (ring) of its users.
    """

    directories: tuple[str, ...]
    client_id: str
    resource: str
    scope: str
    rings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(
        cls,
        directories: Iterable[str],
        client_id: str,
        resource: str,
        scope: str,
        rings: Iterable[tuple[str, str]] = (),
    ) -> Self:
        """Check each value. Raises InvalidField."""
        ids = tuple(dict.fromkeys(_guid("directory", text) for text in directories))
        pairs = tuple(dict.fromkeys((value.strip(), ring.strip()) for value, ring in rings))
        checks = {
            "directory": (0 < len(ids) <= MAX_DIRECTORIES, f"must be given 1 to {MAX_DIRECTORIES} times"),
            "resource": (_RESOURCE.fullmatch(resource), "must be an Application ID URI, such as api://…"),
            "scope": (_SCOPE.fullmatch(scope), "must be the name of a scope, such as access"),
            "map": (
                len(pairs) <= MAX_RINGS
                and all(0 < len(value) <= VALUE_LIMIT and _RING.fullmatch(ring) for value, ring in pairs),
                f"must be an app role or group id, `=`, and a ring of letters and digits; at most {MAX_RINGS}",
            ),
        }
        for field, (is_valid, message) in checks.items():
            if not is_valid:
                raise InvalidField(field, message)
        return cls(ids, _guid("client_id", client_id), resource, scope, pairs)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the app from the database or from another service. Raises KeyError, TypeError or InvalidField."""
        return cls.parse(
            document["directories"],
            document["client_id"],
            document["resource"],
            document["scope"],
            [(value, ring) for value, ring in document["rings"]],
        )


def _guid(field: str, text: str) -> str:
    try:
        return str(UUID(text))
    except (ValueError, AttributeError):
        raise InvalidField(field, "must be a GUID, such as 3f2504e0-4f89-11d3-9a0c-0305e82c3301") from None
