"""The lists of `tests/mutants` fit the product, and each mutation gets the tests near it."""

from tests.mutants.mutations import read_mutations
from tests.mutants.near import near, wider


def test_every_mutation_can_be_applied() -> None:
    assert {mutation.number: fault for mutation in read_mutations() if (fault := mutation.fault())} == {}


def test_the_tests_near_a_file_have_its_name_or_folder_or_name_it() -> None:
    unit, services, system, _ = near("gateway/auth/authenticator.py")
    assert unit[0] == "tests/unit/gateway/auth/test_authenticator.py"
    assert "tests/unit/gateway/auth/test_user_directory.py" in unit
    assert "tests/contract/common/auth/test_sessions.py" in near("common/auth/sessions.py")[1]
    assert not set(system) & set(wider("gateway/auth/authenticator.py")[2])
    assert all(path.startswith(("tests/contract/", "tests/service/")) for path in services)
