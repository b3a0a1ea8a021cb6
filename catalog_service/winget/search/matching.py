"""Matches keywords with the packages of an index segment."""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import chain

from catalog_service.winget.search.fields import ANY_MARKET, CODES, NOT_IN, SEPARATOR, TEXTS, Field, folded, squeezed
from catalog_service.winget.search.index import IndexSegment


class MatchType(StrEnum):
    """The match types of the protocol. Servers define the last three.

    `WILDCARD` matches the whole value; `*` is any text and `?` one character. `FUZZY` and `FUZZY_SUBSTRING` are
    `CASE_INSENSITIVE` and `SUBSTRING` on letters and digits without accents. On codes all are `CASE_INSENSITIVE`.
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
    """A keyword and the fields to search, which are all in `TEXTS`, or none is."""

    fields: frozenset[Field]
    keyword: str
    kind: MatchType

    @cached_property
    def of_whole_values(self) -> bool:
        """Whether packages are looked up by whole values, without a scan."""
        if self.kind in WHOLE or Field.MARKET in self.fields:
            return True
        return self.kind in GUESSED and self.fields <= CODES

    @cached_property
    def lines(self) -> frozenset[str] | None:
        """Lines of which each matching package has one; None if only a scan tells."""
        if not self.of_whole_values or Field.MARKET in self.fields:
            return None
        return frozenset(field.mark + self._folded for field in self.fields)

    def numbers_in(self, segment: IndexSegment) -> Set[int]:
        """Return the numbers of the matching packages."""
        if Field.MARKET in self.fields:
            return self._in_market(segment)
        if self.of_whole_values:
            return self._whole(segment)
        return set(chain.from_iterable(self._scans(segment, 0, len(segment.records))))

    def first_in(self, segment: IndexSegment, start: int, end: int) -> int:
        """Return the first matching number from `start` on, `end` if there is none before it. Only for scans."""
        return min([next(scan, end) for scan in self._scans(segment, start, end)], default=end)

    def _whole(self, segment: IndexSegment) -> Set[int]:
        matching: set[int] = set()
        for field in self.fields:
            numbers = segment.numbers_of(field.mark + self._folded)
            if not numbers:
                continue
            if self.kind is MatchType.EXACT and field in TEXTS:
                spelled = field.mark + self.keyword
                numbers = [number for number in numbers if spelled in segment.records[number].texts]
            matching.update(numbers)
        return matching

    def _in_market(self, segment: IndexSegment) -> Set[int]:
        """Return the packages with an installer for a market, by its whole name."""
        mark = Field.MARKET.mark
        anywhere, here = (segment.numbers_of(mark + value) for value in (ANY_MARKET, self._folded))
        return {*anywhere, *here}.difference(segment.numbers_of(mark + NOT_IN + self._folded))

    def _scans(self, segment: IndexSegment, start: int, end: int) -> Sequence[Iterator[int]]:
        """Return iterators that together find the matching numbers from `start` to `end`, each in ascending order."""
        if self._has_control_characters:
            return ()  # No value has any, but the separators are such.
        lines, part = segment.texts if self.fields <= TEXTS else segment.codes, (start, end)
        match self.kind:
            case MatchType.SUBSTRING if self._folded:
                return [lines.find(self._folded, *part, marks=self._marks)]
            case MatchType.WILDCARD:
                return [lines.find_matches(self._pattern, *part)]
            case MatchType.FUZZY:
                return [lines.squeezed.find(mark + self._squeezed + SEPARATOR, *part) for mark in self._marks]
            case MatchType.FUZZY_SUBSTRING if self._squeezed:
                return [lines.squeezed.find(self._squeezed, *part, marks=self._marks)]
        text = "" if self.kind is MatchType.FUZZY_SUBSTRING else self._folded
        return [lines.find(mark + text, *part) for mark in self._marks]

    @cached_property
    def _has_control_characters(self) -> bool:
        return any(ord(character) < ord(" ") for character in self.keyword)

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
        """The pattern of a wildcard keyword. Atomic groups keep its running time linear."""

        def fixed(text: str) -> str:
            return f"[^{SEPARATOR}]".join(map(re.escape, text.split("?")))

        first, *rest = map(fixed, re.sub(r"\*+", "*", self._folded).split("*"))
        middle = "".join(f"(?>[^{SEPARATOR}]*?{text})" for text in rest[:-1])
        last = f"[^{SEPARATOR}]*{rest[-1]}" if rest else ""
        return re.compile(f"[{re.escape(self._marks)}]{first}{middle}{last}(?={SEPARATOR})")
