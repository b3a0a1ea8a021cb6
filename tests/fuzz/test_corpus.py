"""Each parser of untrusted bytes handles every input of the corpus."""

import pytest

from tests.fuzz.targets import CORPUS, TARGETS
from tests.support.tables import each


@pytest.mark.full
@each("name", TARGETS)
def test_hostile_input_is_parsed_correctly_or_refused(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        try:
            TARGETS[name](path.read_bytes())
        except Exception as error:
            error.add_note(f"by the input {path}")
            raise


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]

    assert {path.parent.name for path in files} == TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < 1 << 20
