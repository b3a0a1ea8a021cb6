"""The table of operations and the OpenAPI document agree."""

import ast
from importlib.resources import files
from typing import Any

from common.auth.roles import USER_ROLES, Permission, Role
from common.service_client.client import ANSWER_TIMEOUT
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.samples.openapi import DOCUMENT
from tests.support.tables import each

PATHS: dict[str, dict[str, Any]] = DOCUMENT["paths"]
# The pages of the sign-in and the assets are for browsers, not part of the interface.
SIGN_IN = {"sign_in", "sign_in/oidc", "sign_in/oidc/callback"}
DOCUMENTED = [row for row in OPERATIONS if row.name not in SIGN_IN and "assets" not in row.parts]


def documented_operation(row: Operation) -> dict[str, Any]:
    operation: dict[str, Any] = PATHS[f"/{row.path}"][row.method.lower()]
    return operation


def name(row: Operation) -> str:
    return f"{row.method} {row.path}"


def test_the_document_describes_every_operation_once_and_no_other() -> None:
    document = [
        (method.upper(), path.lstrip("/"))
        for path, item in PATHS.items()
        for method in item
        if method in {"get", "post", "patch", "delete", "put"}
    ]
    assert sorted(document) == sorted((row.method, row.path) for row in DOCUMENTED)


@each("row", DOCUMENTED, ids=name)
def test_an_operation_names_its_credentials(row: Operation) -> None:
    security = documented_operation(row).get("security", DOCUMENT["security"])
    bearer: list[dict[str, list[str]]] = [{"bearerAuth": []}]
    assert security == {
        Access.ADMINISTRATOR: bearer,
        Access.SESSION: bearer,
        Access.CLIENT: [*bearer, {}],
        Access.PACKAGE_MANAGER: [*bearer, {"entraId": []}, {}],
    }.get(row.access, [])


@each("row", DOCUMENTED, ids=name)
def test_an_operation_names_its_permission(row: Operation) -> None:
    operation = documented_operation(row)
    assert operation.get("x-permission", Permission.NONE) == row.permission
    if row.permission is not Permission.NONE and not row.is_winget:
        (content,) = _resolve(operation["responses"]["403"])["content"].values()
        assert content["examples"]["permission"] == {"$ref": "#/components/examples/PermissionMissing"}


def test_the_document_names_every_role() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Role"]["enum"] == list(USER_ROLES)
    assert schemas["TokenRoles"]["items"]["enum"] == [role for role in Role if role is not Role.ADMINISTRATOR]


def test_a_catalog_has_the_timeout_of_a_small_request() -> None:
    """An unavailable service is reported within three seconds; receiving a large catalog may take longer."""
    (row,) = (row for row in OPERATIONS if row.name == "get_packages")
    assert row.timeout == ANSWER_TIMEOUT == 3


def test_dispatch_names_no_operation() -> None:
    routes = ast.parse((files("gateway") / "routes.py").read_text())
    texts = {node.value for node in ast.walk(routes) if isinstance(node, ast.Constant)}
    assert not texts & {row.name for row in OPERATIONS}


def _resolve(item: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in item:
        return item
    node: Any = DOCUMENT
    for part in item["$ref"].removeprefix("#/").split("/"):
        node = node[part]
    return dict(node)
