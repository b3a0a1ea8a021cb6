"""Hooks of schemathesis that protect values. It learns names from answers, and would delete its own user."""

import json
import os
from typing import Any

import schemathesis

PROTECTED: dict[str, list[str]] = json.loads(os.environ["FUZZ_KEEP"])  # values, by operation


@schemathesis.hook
def before_call(_: Any, case: Any, **__: Any) -> None:
    """Replace the protected values of an operation by others."""
    protected = PROTECTED.get(case.operation.path.split("/")[1], [])
    if protected:
        parts = case.path_parameters.items()
        case.path_parameters = {name: "another" if value in protected else value for name, value in parts}
        if isinstance(case.body, dict):
            case.body = {name: _without(protected, value) for name, value in case.body.items()}


def _without(protected: list[str], value: Any) -> Any:
    """A field with its protected values replaced, also in lists and in parts of a text."""
    if isinstance(value, list):
        return [_without(protected, item) for item in value]
    if isinstance(value, str):
        for text in protected:
            value = value.replace(text, "another")
    return value
