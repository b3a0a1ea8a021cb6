"""One thing that a search asks for, and the packages of a block that have it."""

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from catalog_service.winget.block import Block
from catalog_service.winget.fields import ANY_MARKET, FOLDED, NOT_IN, SEPARATOR, Field, folded, squeezed


class MatchType(StrEnum):
    """The protocol's, which leaves the last three to its servers.

    `WILDCARD`: the whole value, in which `*` is any text and `?` one character. `FUZZY` and `FUZZY_SUBSTRING`: as
    `CASE_INSENSITIVE` and `SUBSTRING`, where nothing but letters and digits counts, and no accent.
    """

    EXACT = "Exact"
    CASE_INSENSITIVE = "CaseInsensitive"
    STARTS_WITH = "StartsWith"
    SUBSTRING = "Substring"
    WILDCARD = "Wildcard"
    FUZZY = "Fuzzy"
    FUZZY_SUBSTRING = "FuzzySubstring"


WHOLE = frozenset([MatchType.EXACT, MatchType.CASE_INSENSITIVE])


@dataclass(frozen=True)
class Match:
    """A keyword, and the fields of which one must have it."""

    fields: frozenset[Field]
    keyword: str
    kind: MatchType

    def within(self, block: Block) -> Set[int]:
        """The numbers of the packages that have it."""
        if Field.MARKET in self.fields:
            return self._to_be_had(block)
        if self.kind in WHOLE:
            return self._whole(block)
        if any(ord(character) < ord(" ") for character in self.keyword):
            return frozenset()  # No value has such characters, but a block does, between values.
        return self._scan(block)

    @cached_property
    def _marks(self) -> str:
        return "".join(field.mark for field in sorted(self.fields))

    @cached_property
    def _folded(self) -> str:
        return folded(self.keyword)

    @cached_property
    def _scan(self) -> Callable[[Block], Set[int]]:
        match self.kind:
            case MatchType.SUBSTRING if self._folded:
                return self._containing
            case MatchType.WILDCARD:
                return self._alike
            case MatchType.FUZZY | MatchType.FUZZY_SUBSTRING:
                return self._roughly
        return self._beginning

    def _whole(self, block: Block) -> Set[int]:
        found: set[int] = set()
        for field in self.fields:
            numbers = block.having(field, self._folded)
            if self.kind is MatchType.EXACT and field not in FOLDED:
                line = field.mark + self.keyword
                numbers = [number for number in numbers if line in block.records[number].lines]
            found.update(numbers)
        return found

    def _to_be_had(self, block: Block) -> Set[int]:
        """Those with an installer for a market; part of a market's name is none."""
        anywhere, here = (block.having(Field.MARKET, value) for value in (ANY_MARKET, self._folded))
        return (set(anywhere) | set(here)) - set(block.having(Field.MARKET, NOT_IN + self._folded))

    def _beginning(self, block: Block) -> Set[int]:
        beginnings = (block.places(mark + self._folded) for mark in self._marks)
        return {number for numbers in beginnings for number in numbers}

    def _containing(self, block: Block) -> Set[int]:
        return set(block.places(self._folded, self._marks))

    def _alike(self, block: Block) -> Set[int]:
        return set(block.matching(self._pattern))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """A line that is like the keyword; what was passed once is not tried again, so that it takes no longer."""

        def fixed(text: str) -> str:
            return f"[^{SEPARATOR}]".join(map(re.escape, text.split("?")))

        first, *rest = map(fixed, re.sub(r"\*+", "*", self._folded).split("*"))
        middle = "".join(f"(?>[^{SEPARATOR}]*?{text})" for text in rest[:-1])
        last = f"[^{SEPARATOR}]*{rest[-1]}" if rest else ""
        return re.compile(f"[{re.escape(self._marks)}]{first}{middle}{last}(?={SEPARATOR})")

    def _roughly(self, block: Block) -> Set[int]:
        return set(self._rough_lines(block))

    def _rough_lines(self, block: Block) -> Iterator[int]:
        wanted, whole = squeezed(self._folded), self.kind is MatchType.FUZZY
        for number, line in enumerate(squeezed(block.text).split(SEPARATOR)):
            if line[:1] in self._marks and line and (line[1:] == wanted if whole else wanted in line[1:]):
                yield block.owner(number)
