"""Converts names and values to winget's protocol."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from catalog_service.model.manifest.fields import pascal

_winget_name = lru_cache(maxsize=512)(pascal)


def with_winget_names(value: Any) -> Any:
    """Return the value with the names of the protocol: `minimum_os_version` becomes `MinimumOSVersion`."""
    if isinstance(value, dict):
        return {_winget_name(name): with_winget_names(member) for name, member in value.items()}
    return [with_winget_names(item) for item in value] if isinstance(value, list | tuple) else value


def without_empty(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are not empty: clients refuse empty ones."""
    return {name: value for name, value in members.items() if value not in ("", [], (), {}, None)}
