"""Hooks of schemathesis that protect values. It learns names from answers, and would delete its own user."""

import json
import os
from collections.abc import Mapping
from typing import Any

import schemathesis

REPLACED: dict[str, dict[str, str]] = json.loads(os.environ["FUZZ_REPLACED"])  # what is sent instead, by operation


@schemathesis.hook
def before_call(_: Any, case: Any, **__: Any) -> None:
    """Replace the protected values of an operation by others."""
    replaced = REPLACED.get(case.operation.path.split("/")[1], {})
    if replaced:
        parts = case.path_parameters.items()
        case.path_parameters = {name: replaced.get(value, value) for name, value in parts}
        if isinstance(case.body, dict):
            case.body = {name: _without(replaced, value) for name, value in case.body.items()}


def _without(replaced: Mapping[str, str], value: Any) -> Any:
    """A field with its protected values replaced, also in lists and in parts of a text."""
    if isinstance(value, list):
        return [_without(replaced, item) for item in value]
    if isinstance(value, str):
        for text, other in replaced.items():
            value = value.replace(text, other)
    return value
