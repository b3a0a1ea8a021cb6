"""Fields as the interface's forms have them."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson


def form(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields as a form has them; what says nothing is left out."""
    for name, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield name, orjson.dumps(value).decode()
        elif isinstance(value, dict):
            yield from [(name, orjson.dumps(value).decode())] if value else []
        elif isinstance(value, list) and value:
            yield name, ",".join(map(str, value))
        elif isinstance(value, bool):
            yield from [(name, "1")] if value else []
        elif value not in ("", []):
            yield name, str(value)
