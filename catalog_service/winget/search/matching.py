"""One thing that a search asks for, and the packages of a block that have it."""

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from catalog_service.winget.search.fields import ANY_MARKET, CODES, NOT_IN, SEPARATOR, TEXTS, Field, folded, squeezed
from catalog_service.winget.search.index_segment import IndexSegment
from catalog_service.winget.search.text_index import TextIndex


class MatchType(StrEnum):
    """The protocol's, which leaves the last three to its servers.

    `WILDCARD`: the whole value, in which `*` is any text and `?` one character. `FUZZY` and `FUZZY_SUBSTRING`: as
    `CASE_INSENSITIVE` and `SUBSTRING`, where nothing but letters and digits counts, and no accent. Of codes, which are
    known whole or not, each of these three is as `CASE_INSENSITIVE`.
    """

    EXACT = "Exact"
    CASE_INSENSITIVE = "CaseInsensitive"
    STARTS_WITH = "StartsWith"
    SUBSTRING = "Substring"
    WILDCARD = "Wildcard"
    FUZZY = "Fuzzy"
    FUZZY_SUBSTRING = "FuzzySubstring"


WHOLE = frozenset([MatchType.EXACT, MatchType.CASE_INSENSITIVE])
GUESSED = frozenset([MatchType.WILDCARD, MatchType.FUZZY, MatchType.FUZZY_SUBSTRING])


@dataclass(frozen=True)
class Match:
    """A keyword, and the fields of which one must have it: all in `TEXTS`, or none."""

    fields: frozenset[Field]
    keyword: str
    kind: MatchType

    @property
    def of_whole_values(self) -> bool:
        """Whether packages that have it are looked up at once."""
        if self.kind in WHOLE or Field.MARKET in self.fields:
            return True
        return self.kind in GUESSED and self.fields <= CODES

    def numbers_in(self, block: IndexSegment) -> Set[int]:
        """The numbers of the packages that have it."""
        return self._found(block)

    @cached_property
    def _found(self) -> Callable[[IndexSegment], Set[int]]:
        """How it is looked for: that is the same in every block."""
        if Field.MARKET in self.fields:
            return self._to_be_had
        if self.of_whole_values:
            return self._whole
        if any(ord(character) < ord(" ") for character in self.keyword):
            return lambda _: frozenset()  # No value has such characters, but lines have, between values.
        return self._in_texts if self.fields <= TEXTS else self._in_codes

    def _in_texts(self, block: IndexSegment) -> Set[int]:
        return self._in(block.texts)

    def _in_codes(self, block: IndexSegment) -> Set[int]:
        return self._in(block.codes)

    def _whole(self, block: IndexSegment) -> Set[int]:
        found: set[int] = set()
        for field, line in self._lines:
            numbers = block.numbers_of(line)
            if not numbers:
                continue
            if self.kind is MatchType.EXACT and field in TEXTS:
                spelled = field.mark + self.keyword
                numbers = [number for number in numbers if spelled in block.records[number].texts]
            found.update(numbers)
        return found

    def _to_be_had(self, block: IndexSegment) -> Set[int]:
        """Those with an installer for a market; part of a market's name is none."""
        mark = Field.MARKET.mark
        anywhere, here = (block.numbers_of(mark + value) for value in (ANY_MARKET, self._folded))
        return {*anywhere, *here}.difference(block.numbers_of(mark + NOT_IN + self._folded))

    def _in(self, lines: TextIndex) -> set[int]:
        match self.kind:
            case MatchType.SUBSTRING if self._folded:
                return set(lines.find(self._folded, self._marks))
            case MatchType.WILDCARD:
                return set(lines.find_matches(self._pattern))
            case MatchType.FUZZY:
                return self._beginning(lines.squeezed, self._squeezed + SEPARATOR)
            case MatchType.FUZZY_SUBSTRING if self._squeezed:
                return set(lines.squeezed.find(self._squeezed, self._marks))
            case MatchType.FUZZY_SUBSTRING:
                return self._beginning(lines, "")
        return self._beginning(lines, self._folded)

    def _beginning(self, lines: TextIndex, text: str) -> set[int]:
        return {number for mark in self._marks for number in lines.find(mark + text)}

    @cached_property
    def _lines(self) -> Sequence[tuple[Field, str]]:
        """What a block has, where a field has the keyword as its whole value."""
        return [(field, field.mark + self._folded) for field in self.fields]

    @cached_property
    def _marks(self) -> str:
        return "".join(field.mark for field in sorted(self.fields))

    @cached_property
    def _folded(self) -> str:
        return folded(self.keyword)

    @cached_property
    def _squeezed(self) -> str:
        return squeezed(self._folded)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """A line that is like the keyword; what was passed once is not tried again, so that it takes no longer."""

        def fixed(text: str) -> str:
            return f"[^{SEPARATOR}]".join(map(re.escape, text.split("?")))

        first, *rest = map(fixed, re.sub(r"\*+", "*", self._folded).split("*"))
        middle = "".join(f"(?>[^{SEPARATOR}]*?{text})" for text in rest[:-1])
        last = f"[^{SEPARATOR}]*{rest[-1]}" if rest else ""
        return re.compile(f"[{re.escape(self._marks)}]{first}{middle}{last}(?={SEPARATOR})")
