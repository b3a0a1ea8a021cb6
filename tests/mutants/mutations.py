"""Reads the mutations of `tests/mutants/*.toml`: one table each, named by the promise that it breaks."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True)
class Mutation:
    """A change of one place of the product: `before`, which its file has once, becomes `after`.

    `tests` are the paths of the tests near it, of which one must fail.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """Change the file in a copy of the repository; return its text from before."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.before, self.after), encoding="utf-8")
        return text

    def fault(self) -> str:
        """The reason why the mutation cannot be applied; "" if it can."""
        path = ROOT / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        places = path.read_text(encoding="utf-8").count(self.before)
        if places != 1:
            return f"{self.file} has the text {places} times: {self.before!r}"
        missing = [test for test in self.tests if not (ROOT / test.partition("::")[0]).exists()]
        return f"missing: {', '.join(missing)}" if missing or not self.tests else ""


def read_mutations() -> Sequence[Mutation]:
    """All mutations, by name."""
    tables = {
        name: table
        for path in sorted(FOLDER.glob("*.toml"))
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items()
    }
    return [
        Mutation(name, table["file"], table["before"], table["after"], tuple(table["tests"]))
        for name, table in sorted(tables.items())
    ]
