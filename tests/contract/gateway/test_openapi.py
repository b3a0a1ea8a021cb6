"""The OpenAPI document is valid, and its examples satisfy their schemas."""

import ast
from collections.abc import Iterator
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator

from catalog_service.versions.routes import external_installer
from common.auth.internal_tokens import operation_of
from tests.support.samples.openapi import DOCUMENT, PATH, resolve_ref, violations
from tests.support.samples.winget_factories import make_version
from tests.support.tables import each

METHODS = ("get", "put", "post", "patch", "delete")
TOKENLESS = {
    "login",
    "logout",
    "download",
    "icon",
    "docs",
    "openapi_json",
    "winget_information",
    "sign_in_oidc_backchannel_logout",
}
# The error formats of the two protocols.
PROBLEM = ("application/problem+json", "#/components/schemas/Problem")
WINGET_ERROR = ("application/json", "#/components/schemas/WingetError")


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every operation and its path."""
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, item[method]


OPERATIONS = list(operations())


def examples(node: Any, pointer: str = "#") -> Iterator[tuple[str, Any]]:
    """Every example and default, with the JSON pointer of its schema."""
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield from examples(item, f"{pointer}/{number}")
    elif isinstance(node, dict):
        if "schema" in node:
            if "example" in node:
                yield f"{pointer}/schema", node["example"]
            for example in node.get("examples", {}).values():
                yield f"{pointer}/schema", resolve_ref(example)["value"]
        if isinstance(node.get("examples"), list):  # the schema's own
            yield from ((pointer, example) for example in node["examples"])
        if "default" in node and {"type", "$ref"}.intersection(node):
            yield pointer, node["default"]
        for key, item in node.items():
            if key not in {"example", "examples"}:
                yield from examples(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")


def test_the_document_is_valid_openapi() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_example_satisfies_its_schema() -> None:
    wrong = [
        f"{pointer}: {violation}"
        for pointer, example in examples(DOCUMENT)
        for violation in violations(pointer, example)
    ]
    assert wrong == []


def test_examples_of_problems_have_the_status_of_their_response() -> None:
    wrong = [
        (operation["operationId"], status, problem["status"])
        for _, operation in operations()
        for status, response in operation["responses"].items()
        for content in resolve_ref(response).get("content", {}).items()
        if content[0] == "application/problem+json"
        for _, problem in examples({"content": content[1]})
        if str(problem["status"]) != status
    ]
    assert wrong == []


@each(("path", "operation"), OPERATIONS)
def test_every_response_has_a_schema_and_an_example(path: str, operation: dict[str, Any]) -> None:
    lacking = [
        f"{status} {kind}"
        for status, response in operation["responses"].items()
        for kind, content in resolve_ref(response).get("content", {}).items()
        if "schema" not in content
        or (kind != "application/octet-stream" and not {"example", "examples"}.intersection(content))
    ]
    assert lacking == []


@each(("path", "operation"), OPERATIONS)
def test_every_parameter_and_every_body_has_a_schema_and_an_example(path: str, operation: dict[str, Any]) -> None:
    described = [resolve_ref(parameter) for parameter in operation.get("parameters", [])]
    described += operation.get("requestBody", {}).get("content", {}).values()
    assert [item for item in described if "schema" not in item or not {"example", "examples"}.intersection(item)] == []


@each(("path", "operation"), OPERATIONS)
def test_an_operation_is_named_after_its_path(path: str, operation: dict[str, Any]) -> None:
    # The operations on a transfer share one path; operation ids must differ.
    shared = DOCUMENT["paths"]["/upload_package_version"]
    name = operation_of(path.split("/")[1:]).replace("/", "_").replace(".", "_")
    if operation is shared["get"]:
        name = "get_upload_state"
    if operation is shared["delete"]:
        name = "cancel_upload"
    assert operation["operationId"] == name


def test_the_targets_of_audit_entries_are_documented() -> None:
    routes = [ast.parse(path.read_text(encoding="utf-8")) for path in PATH.parents[1].glob("*_service/routes.py")]
    calls = [node for route in routes for node in ast.walk(route) if isinstance(node, ast.Call)]
    target_names = {
        keyword.arg for call in calls if ast.unparse(call.func) == "audit" for keyword in call.keywords if keyword.arg
    }
    target_names |= external_installer(make_version(installer_url="https://downloads.example.com/a.exe")).keys()
    described = DOCUMENT["components"]["schemas"]["AuditEntry"]["properties"]["target"]["description"]
    text = PATH.read_text(encoding="utf-8")
    assert len(target_names) > 8
    assert [name for name in target_names if f"`{name}`" not in described and f" {name}: {{" not in text] == []


def test_operation_ids_are_unique() -> None:
    names = [operation["operationId"] for _, operation in operations()]
    assert len(names) == len(set(names))


def test_every_tag_is_declared_and_used() -> None:
    assert {tag["name"] for tag in DOCUMENT["tags"]} == {
        tag for _, operation in operations() for tag in operation["tags"]
    }


def test_every_component_is_used() -> None:
    text = PATH.read_text(encoding="utf-8")
    kinds = {kind: names for kind, names in DOCUMENT["components"].items() if kind != "securitySchemes"}
    unused = [f"{kind}/{name}" for kind, names in kinds.items() for name in names if f"/{kind}/{name}'" not in text]
    assert unused == []


@each(("path", "operation"), OPERATIONS)
def test_an_operation_lists_its_errors(path: str, operation: dict[str, Any]) -> None:
    expected = {"400", "403", "404", "500", "503"}
    if operation["operationId"] not in TOKENLESS - {"login"}:
        expected.add("401")
    if "requestBody" in operation:
        expected.add("413")
    assert expected <= set(operation["responses"])
    assert "default" not in operation["responses"]


@each(("path", "operation"), OPERATIONS)
def test_errors_have_the_format_of_their_protocol(path: str, operation: dict[str, Any]) -> None:
    errors = [response for status, response in operation["responses"].items() if status >= "400"]
    kinds = [resolve_ref(response)["content"] for response in errors]
    kind, schema = WINGET_ERROR if path.startswith("/winget/") else PROBLEM
    assert all(list(content) == [kind] for content in kinds)
    assert {content[kind]["schema"]["$ref"] for content in kinds} == {schema}


@each(("path", "operation"), OPERATIONS)
def test_the_path_and_its_parameters_agree(path: str, operation: dict[str, Any]) -> None:
    path_parameters = {step[1:-1] for step in path.split("/") if step.startswith("{")}
    parameters = [resolve_ref(parameter) for parameter in operation.get("parameters", [])]
    assert {parameter["name"] for parameter in parameters if parameter["in"] == "path"} == path_parameters
