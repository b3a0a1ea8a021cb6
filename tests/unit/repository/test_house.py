"""The size of the product, and the ways between its parts, stay within limits. Lower a limit after a change."""

from tests.support.house import count_code, figures, folder_cycles, service_circles, sources

LIMITS = {"lines of code": 25_200, "lines": 40_600, "modules": 280}


def test_the_product_does_not_grow_unseen() -> None:
    assert {name: number for name, number in figures().items() if number > LIMITS.get(name, number)} == {}


def test_no_services_call_each_other_in_a_circle() -> None:
    assert service_circles() == []


def test_no_two_folders_of_a_service_import_each_other() -> None:
    assert folder_cycles() == []


def test_only_code_counts_as_code() -> None:
    text = ['"""A module."""', "import os", "", "# A comment.", "def f() -> str:", '    """Text."""', "    return ("]
    text += ["        os.name", "    )", ""]
    assert count_code("\n".join(text)) == 4


def test_every_package_is_counted() -> None:
    assert {module.split("/")[0] for module in sources()} == {
        "gateway",
        "auth_service",
        "catalog_service",
        "upload_service",
        "client_registry",
        "common",
        "deploy",
    }
