"""Each parser of untrusted bytes handles every input of the corpus."""

from tests.fuzz.corpus import CORPUS, read_corpus
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
