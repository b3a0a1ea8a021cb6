"""Whatever was ever found to be interesting is read as it should be, by each reader of strangers' bytes."""

import pytest

from tests.fuzz.targets import CORPUS, TARGETS
from tests.support.tables import each


@pytest.mark.full
@each("name", TARGETS)
def test_hostile_input_is_read_right_or_refused(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        try:
            TARGETS[name](path.read_bytes())
        except Exception as error:
            error.add_note(f"by the input {path}")
            raise


def test_the_corpus_has_inputs_of_targets_only_and_stays_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]

    assert {path.parent.name for path in files} == TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < 1 << 20
