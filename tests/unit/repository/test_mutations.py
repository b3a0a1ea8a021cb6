"""The lists of `tests/mutants` fit the product, and each mutation gets the tests near it."""

from tests.mutants.mutations import read_mutations
from tests.mutants.near import near, wider


def test_every_mutation_can_be_applied() -> None:
    assert {mutation.number: fault for mutation in read_mutations() if (fault := mutation.fault())} == {}


def test_the_tests_near_a_file_begin_with_those_of_its_name() -> None:
    unit, _, system, _ = near("gateway/auth/authenticator.py")
    assert unit[0] == "tests/unit/gateway/auth/test_authenticator.py"
    assert not set(system) & set(wider("gateway/auth/authenticator.py")[2])
