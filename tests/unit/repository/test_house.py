"""The size of the product, and the ways between its parts, stay within limits. Lower a limit after a change."""

from tests.support.house import figures, folder_cycles, service_circles

LIMITS = {"lines of code": 25_000, "lines": 40_300, "modules": 279}


def test_the_product_does_not_grow_unseen() -> None:
    assert {name: number for name, number in figures().items() if number > LIMITS.get(name, number)} == {}


def test_no_services_call_each_other_in_a_circle() -> None:
    assert service_circles() == []


def test_no_two_folders_of_a_service_import_each_other() -> None:
    assert folder_cycles() == []
