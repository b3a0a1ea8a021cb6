"""Evaluates a search on one segment of the index.

All conditions go through the packages in the order of their numbers. Each one looks for its next match only from the
first package on that all others can still match. A condition that matches nearly everything, or nearly nothing,
therefore costs little beside another one. No condition passes the same text twice. Scans come first: many whole values,
such as markets, can match everything, and segments without the others are skipped before.
"""

from collections.abc import Sequence
from operator import attrgetter

from catalog_service.winget.search.cooperative_yield import CooperativeYield
from catalog_service.winget.search.index import IndexSegment
from catalog_service.winget.search.matching import Match
from catalog_service.winget.search.requests import Search
from catalog_service.winget.search.text_index import Finder


class _Cursor:
    """Finds the packages that one of several matches has."""

    def __init__(self, matches: Sequence[Match], segment: IndexSegment) -> None:
        self._matches = matches
        self._segment = segment
        self._finders: list[Finder] = []
        self._following: list[int] = []  # the last result of each finder
        self._next = len(segment.records)  # the least of them
        self.has_begun = False

    async def begin(self, number: int, cooperative: CooperativeYield) -> None:
        """Run each finder once. Later runs are short, because they go on from there."""
        self._finders = [finder for match in self._matches for finder in match.finders(self._segment)]
        for finder in self._finders:
            await cooperative.pause()
            self._following.append(finder(number))
        self._next = min(self._following, default=self._next)
        self.has_begun = True

    def first(self, number: int) -> int:
        """Return the first matching package from a number on; the numbers of the calls ascend."""
        if self._next < number:
            for index, finder in enumerate(self._finders):
                if self._following[index] < number:
                    self._following[index] = finder(number)
                if self._following[index] == number:  # The other finders can find nothing before it.
                    self._next = number
                    return number
            self._next = min(self._following)
        return self._next


async def matching_numbers(search: Search, segment: IndexSegment, cooperative: CooperativeYield) -> Sequence[int]:
    """Return the numbers of the matching packages in ascending order; other tasks run between two matches."""
    conditions = [(match,) for match in sorted(search.filters, key=attrgetter("of_whole_values"))]
    cursors = [_Cursor(matches, segment) for matches in (*conditions, search.either) if matches]
    end = len(segment.records)
    return await _intersection(cursors, end, cooperative) if cursors else range(end)


def candidate_segments(search: Search, segments: Sequence[IndexSegment]) -> Sequence[IndexSegment]:
    """Return the segments that may have matching packages: the others lack all of a need's lines and pieces."""
    for lines, pieces in search.needs():
        segments = [
            segment
            for segment in segments
            if not segment.lines.isdisjoint(lines) or (pieces and any(map(segment.texts.may_have, pieces)))
        ]
    return segments


async def _intersection(cursors: Sequence[_Cursor], end: int, cooperative: CooperativeYield) -> Sequence[int]:
    """Return the numbers that all cursors find."""
    order, numbers, number = list(cursors), list[int](), 0
    while number < end:
        for index, cursor in enumerate(order):
            await cooperative.pause()
            if not cursor.has_begun:
                await cursor.begin(number, cooperative)
            following = cursor.first(number)
            if following != number:
                order.insert(0, order.pop(index))  # The rarest matches come first.
                break
        else:
            numbers.append(number)
            following = number + 1
        number = following
    return numbers
