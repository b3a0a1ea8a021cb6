"""Reads lists of mutations: TOML files of `[[mutation]]` tables."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True)
class Mutation:
    """A change of one place of the product: `old`, which its file has once, becomes `new`.

    `breaks` is the promise that it breaks. `tests` are paths of tests that are not near the file, but notice it.
    """

    number: int
    file: str
    breaks: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    def apply(self, root: Path) -> str:
        """Change the file in a copy of the repository; return its text from before."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return text

    def fault(self) -> str:
        """The reason why the mutation cannot be applied; "" if it can."""
        path = ROOT / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        places = path.read_text(encoding="utf-8").count(self.old)
        if places != 1:
            return f"{self.file} has the text {places} times: {self.old!r}"
        if self.old == self.new:
            return "it changes nothing"
        missing = [test for test in self.tests if not (ROOT / test).exists()]
        return f"missing: {', '.join(missing)}" if missing else ""


def read_mutations(paths: Iterable[Path] = ()) -> Sequence[Mutation]:
    """The mutations of the given lists, or of all lists of this folder."""
    tables = (tomllib.loads(path.read_text(encoding="utf-8")) for path in paths or sorted(FOLDER.glob("*.toml")))
    return [
        Mutation(**{**mutation, "tests": tuple(mutation.get("tests", ()))})
        for table in tables
        for mutation in table["mutation"]
    ]
