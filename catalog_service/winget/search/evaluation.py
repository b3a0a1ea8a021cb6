"""Evaluates a search on one segment of the index.

Whole values are looked up. Scans go through the packages in the order of their numbers: each one looks for its next
match only from the first package on that all others can still match. A scan that matches nearly everything, or nearly
nothing, therefore costs little beside another one. No scan passes the same text twice.
"""

from bisect import bisect_left
from collections.abc import Sequence

from catalog_service.winget.search.cooperative_yield import CooperativeYield
from catalog_service.winget.search.index import IndexSegment
from catalog_service.winget.search.requests import Search
from catalog_service.winget.search.text_index import Finder


class _Cursor:
    """Finds the packages that match one of several finders."""

    def __init__(self, finders: Sequence[Finder], end: int) -> None:
        self._finders = finders
        self._following: list[int] = []  # the last result of each finder
        self._next = end  # the least of them
        self.has_begun = False

    async def begin(self, number: int, cooperative: CooperativeYield) -> None:
        """Run each finder once. Later runs are short, because they go on from there."""
        for finder in self._finders:
            await cooperative.pause()
            self._following.append(finder(number))
        self._next = min(self._following, default=self._next)
        self.has_begun = True

    def first(self, number: int) -> int:
        """Return the first matching package from a number on; the numbers of the calls ascend."""
        if self._next < number:
            for index, following in enumerate(self._following):
                if following < number:
                    self._following[index] = self._finders[index](number)
            self._next = min(self._following)
        return self._next


async def matching_numbers(search: Search, segment: IndexSegment, cooperative: CooperativeYield) -> Sequence[int]:
    """Return the numbers of the matching packages in ascending order; other tasks run between two matches."""
    end = len(segment.records)
    lookups = [{*match.numbers_in(segment)} for match in search.filters if match.of_whole_values]
    scans = [match.finders(segment) for match in search.filters if not match.of_whole_values]
    either: set[int] = set().union(*[match.numbers_in(segment) for match in search.either if match.of_whole_values])
    either_scans = [match for match in search.either if not match.of_whole_values]
    if either_scans:
        finders = [finder for match in either_scans for finder in match.finders(segment)]
        scans.append([_finder(sorted(either), end), *finders])
    elif search.either:
        lookups.append(either)
    candidates = sorted(set.intersection(*lookups)) if lookups else range(end)
    if not scans or not candidates:
        return candidates
    if lookups:
        scans.append([_finder(candidates, end)])
    return await _intersection([_Cursor(finders, end) for finders in scans], end, cooperative)


def candidate_segments(search: Search, segments: Sequence[IndexSegment]) -> Sequence[IndexSegment]:
    """Return the segments that may have matching packages: the others lack all of the whole values."""
    for needed in search.needed_lines:
        segments = [segment for segment in segments if not segment.lines.isdisjoint(needed)]
    return segments


def _finder(numbers: Sequence[int], end: int) -> Finder:
    """Find the packages of these ascending numbers."""

    def first(number: int) -> int:
        index = bisect_left(numbers, number)
        return numbers[index] if index < len(numbers) else end

    return first


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
