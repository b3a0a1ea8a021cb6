"""Each parser of untrusted bytes handles every input of the corpus."""

from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.corpus import CORPUS, read_corpus, write_corpus
from tests.fuzz.targets import TARGETS
from tests.support.tables import each


@each("target", TARGETS)
def test_hostile_input_is_parsed_correctly_or_refused(target: str) -> None:
    inputs = read_corpus(target)
    assert inputs
    for name, content in inputs.items():
        try:
            TARGETS[target](content)
        except Exception as error:
            error.add_note(f"by the input {name}")
            raise


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    archives = list(CORPUS.iterdir())
    assert {path.name for path in archives} == {f"{target}.zip" for target in TARGETS}
    assert sum(path.stat().st_size for path in archives) < 1 << 20


def test_a_corpus_has_each_input_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    write_corpus("form", [b"a", b"", b"a"])
    first = (tmp_path / "form.zip").read_bytes()
    assert sorted(read_corpus("form").values()) == [b"", b"a"]
    write_corpus("form", [b"", b"a"])
    assert (tmp_path / "form.zip").read_bytes() == first
