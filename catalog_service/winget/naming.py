"""Values of ours by the names that winget's protocol has for them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_CAPITALS = {"os": "OS", "dscv3": "DSCv3"}


def with_winget_names(value: Any) -> Any:
    """The same in the protocol's names: `minimum_os_version` is `MinimumOSVersion`."""
    if isinstance(value, dict):
        return {_name(name): with_winget_names(member) for name, member in value.items()}
    return [with_winget_names(item) for item in value] if isinstance(value, list | tuple) else value


def without_empty(members: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty: a client takes that for a mistake."""
    return {name: value for name, value in members.items() if value not in ("", [], (), {}, None)}


@lru_cache(maxsize=512)
def _name(name: str) -> str:
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in name.split("_"))
