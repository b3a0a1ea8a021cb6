"""The mutations of `tests/mutants` fit the product, so that `make mutants` applies all of them."""

from tests.mutants.mutations import read_mutations


def test_every_mutation_can_be_applied() -> None:
    assert {mutation.name: fault for mutation in read_mutations() if (fault := mutation.fault())} == {}


def test_every_mutation_changes_its_file() -> None:
    assert [mutation.name for mutation in read_mutations() if mutation.before == mutation.after] == []
