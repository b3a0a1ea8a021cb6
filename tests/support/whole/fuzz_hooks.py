"""What schemathesis must leave alone: it learns names from answers, and would delete the user whose session it has."""

import json
import os
from typing import Any

import schemathesis

PROTECTED: dict[str, list[str]] = json.loads(os.environ["FUZZ_KEEP"])  # values, by operation


@schemathesis.hook
def before_call(_: Any, case: Any, **__: Any) -> None:
    """Let operations end anything but what must stay."""
    kept = PROTECTED.get(case.operation.path.split("/")[1], [])
    if kept:
        parts = case.path_parameters.items()
        case.path_parameters = {name: "another" if value in kept else value for name, value in parts}
        if isinstance(case.body, dict):
            case.body = {name: _without(kept, value) for name, value in case.body.items()}


def _without(kept: list[str], value: Any) -> Any:
    """A field, a list of values or several in one text included, with other values for those that must stay."""
    if isinstance(value, list):
        return [_without(kept, one) for one in value]
    if isinstance(value, str):
        for one in kept:
            value = value.replace(one, "another")
    return value
