"""The app of Entra ID has valid values only."""

from typing import Any

import pytest

from common.errors import InvalidField
from common.tenants import MAX_DIRECTORIES, EntraApp
from tests.support.servers.entra import APP, DIRECTORY
from tests.support.tables import each

VALUES: dict[str, Any] = {
    "directories": [DIRECTORY],
    "client_id": APP.client_id,
    "resource": APP.resource,
    "scope": "access",
    "rings": [("Pilot", "pilot")],
}


def test_ids_have_one_spelling() -> None:
    app = EntraApp.parse(**{**VALUES, "directories": [f"{{{DIRECTORY.upper()}}}", DIRECTORY]})
    assert app.directories == (DIRECTORY,)


def test_rings_keep_the_order_of_the_operator() -> None:
    app = EntraApp.parse(**{**VALUES, "rings": [("b", "two"), ("a", "one"), ("c", "two")]})
    assert app.rings == (("b", "two"), ("a", "one"), ("c", "two"))


@each(
    ("field", "change"),
    [
        ("directory", {"directories": []}),
        ("directory", {"directories": ["organizations"]}),
        (
            "directory",
            {"directories": [f"{number:08}-2222-4333-8444-555555555555" for number in range(MAX_DIRECTORIES + 1)]},
        ),
        ("client_id", {"client_id": "winget"}),
        ("resource", {"resource": "http://example.com"}),
        ("resource", {"resource": "api://a b"}),
        ("resource", {"resource": ""}),
        ("scope", {"scope": "api://app/access"}),
        ("scope", {"scope": ""}),
        ("map", {"rings": [("", "pilot")]}),
        ("map", {"rings": [("Pilot", "")]}),
        ("map", {"rings": [("Pilot", "<script>")]}),
        ("map", {"rings": [("x" * 129, "pilot")]}),
    ],
)
def test_an_invalid_value_names_its_field(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as problem:
        EntraApp.parse(**{**VALUES, **change})
    assert problem.value.field == field
