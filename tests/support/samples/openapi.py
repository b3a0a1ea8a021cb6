"""The OpenAPI document of the interface, and what differs from it."""

from pathlib import Path
from typing import Any

import yaml
from openapi_schema_validator import OAS31Validator, oas31_format_checker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

PATH = Path(__file__).parents[3] / "gateway" / "openapi.yaml"
DOCUMENT: dict[str, Any] = yaml.load(PATH.read_bytes(), yaml.CSafeLoader)  # ten times as fast as the Python loader
_REGISTRY: Registry[Any] = Registry().with_resource(
    "urn:openapi", Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
)


def resolve_ref(node: dict[str, Any]) -> dict[str, Any]:
    """The node, with its `$ref` resolved."""
    while "$ref" in node:
        target: Any = DOCUMENT
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node


def violations(pointer: str, value: object) -> list[str]:
    """How a value differs from the schema at a JSON pointer of the document."""
    schema = {"$ref": f"urn:openapi{pointer}"}
    validator: Any = OAS31Validator(schema, registry=_REGISTRY, format_checker=oas31_format_checker)
    return [f"{error.json_path} {error.message}" for error in validator.iter_errors(value)]
