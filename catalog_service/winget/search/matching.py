"""Matches keywords with the packages of an index segment."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from catalog_service.model.identities import folded
from catalog_service.winget.search.fields import ANY_MARKET, CODES, NOT_IN, SEPARATOR, TEXTS, Field, squeezed
from catalog_service.winget.search.index import IndexSegment
from catalog_service.winget.search.text_index import Finder


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
PARTS_OF_TEXTS = frozenset([MatchType.STARTS_WITH, MatchType.SUBSTRING])
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

    @property
    def lines(self) -> frozenset[str]:
        """Lines of which each matching package has one; none if only a scan tells."""
        if not self.of_whole_values or Field.MARKET in self.fields:
            return frozenset()
        return frozenset(field.mark + self._folded for field in self.fields)

    @property
    def piece(self) -> str:
        """A part of the texts of each matching package; "" if none is known."""
        return self._folded if self.kind in PARTS_OF_TEXTS and self.fields <= TEXTS else ""

    def finders(self, segment: IndexSegment) -> Sequence[Finder]:
        """Return finders of the matching packages: each matching package has one that finds it."""
        if Field.MARKET in self.fields:
            return self._market_finders(segment)
        if self.of_whole_values:
            return [self._whole_finder(segment, field) for field in self.fields]
        # No value has control characters, but the separators are such.
        return () if self._has_control_characters else self._scans(segment)

    def _scans(self, segment: IndexSegment) -> Sequence[Finder]:
        lines = segment.texts if self.fields <= TEXTS else segment.codes
        match self.kind:
            case MatchType.SUBSTRING if self._folded:
                return [lines.finder(self._folded, self._marks)]
            case MatchType.WILDCARD:
                return [lines.pattern_finder(self._pattern)]
            case MatchType.FUZZY:
                return [lines.squeezed.finder(mark + self._squeezed + SEPARATOR) for mark in self._marks]
            case MatchType.FUZZY_SUBSTRING if self._squeezed:
                return [lines.squeezed.finder(self._squeezed, self._marks)]
        text = "" if self.kind is MatchType.FUZZY_SUBSTRING else self._folded
        return [lines.finder(mark + text) for mark in self._marks]

    def _whole_finder(self, segment: IndexSegment, field: Field) -> Finder:
        find = segment.finder(field.mark + self._folded)
        if self.kind is not MatchType.EXACT or field not in TEXTS:
            return find
        spelled = field.mark + self.keyword
        return _where(find, lambda number: spelled in segment.records[number].texts, len(segment.records))

    def _market_finders(self, segment: IndexSegment) -> Sequence[Finder]:
        """Find the packages with an installer for a market, by its whole name."""
        mark = Field.MARKET.mark
        finders = [segment.finder(mark + value) for value in (ANY_MARKET, self._folded)]
        if mark + NOT_IN + self._folded not in segment.lines:
            return finders
        excluded = segment.finder(mark + NOT_IN + self._folded)
        return [_where(find, lambda number: excluded(number) != number, len(segment.records)) for find in finders]

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


def _where(find: Finder, accepts: Callable[[int], bool], end: int) -> Finder:
    """Find what `find` finds if it is accepted."""

    def first(number: int) -> int:
        number = find(number)
        while number < end and not accepts(number):
            number = find(number + 1)
        return number

    return first
