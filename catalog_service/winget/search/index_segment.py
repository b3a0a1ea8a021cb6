"""Some packages as a search goes through them: by whole values at once, by parts of values in one text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from catalog_service.winget.search.fields import folded
from catalog_service.winget.search.text_index import FILTER_SIZE, TextIndex

SIZE = 512  # packages; twice as many become two blocks
OVERHEAD = 400  # bytes that a package takes beside its texts
LINE_OVERHEAD = 100  # bytes that a value does beside itself, to be looked up by


@dataclass(frozen=True)
class Record:
    """A package that can be found.

    `texts` and `codes` are its values, each after its field's mark; of codes the letter case says nothing, and they are
    folded. `hit` is what is told of it, in JSON. `since` has for each of its versions the contract 1.x that it takes.
    """

    package_id: str
    texts: tuple[str, ...]
    codes: tuple[str, ...]
    hit: bytes
    since: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes, with what a block keeps to find it by."""
        texts, codes = sum(map(len, self.texts)), sum(map(len, self.codes))
        lines = len(self.texts) + len(self.codes)
        return OVERHEAD + len(self.hit) + 4 * texts + 3 * codes + LINE_OVERHEAD * lines


class IndexSegment:
    """Packages that follow one another in the order of their ids; never changed, only replaced."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.ids = [record.package_id for record in records]
        texts = [[folded(line) for line in record.texts] for record in records]
        self.texts = TextIndex(texts, sieved=True)
        self.size = sum(record.size for record in records) + (FILTER_SIZE if self.texts.filter else 0)
        self._numbers: dict[str, int | list[int]] = {}
        for number, record in enumerate(records):
            for line in {*texts[number], *record.codes}:
                others = self._numbers.setdefault(line, number)
                if isinstance(others, list):
                    others.append(number)
                elif others != number:
                    self._numbers[line] = [others, number]

    @cached_property
    def codes(self) -> TextIndex:
        """Seldom gone through, and longer than the texts: made once, and only where it is asked for."""
        return TextIndex([record.codes for record in self.records])

    def numbers_of(self, line: str) -> Sequence[int]:
        """The numbers of the packages that have this folded value, after its field's mark."""
        found = self._numbers.get(line, ())
        return (found,) if isinstance(found, int) else found
