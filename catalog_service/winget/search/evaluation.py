"""Evaluates a search on one segment of the index.

The packages with the whole values are looked up first. The scans then go through these packages in the order of their
numbers: each scan looks for its next match only from the first package on that all scans can still match. A scan that
matches nearly everything therefore costs little beside one that matches little.
"""

from bisect import bisect_left
from collections.abc import Sequence, Set

from catalog_service.winget.search.cooperative_yield import CooperativeYield
from catalog_service.winget.search.index import IndexSegment
from catalog_service.winget.search.matching import Match
from catalog_service.winget.search.requests import Search


async def matching_numbers(search: Search, segment: IndexSegment, cooperative: CooperativeYield) -> Sequence[int]:
    """Return the numbers of the matching packages in ascending order; other tasks run between two matches."""
    lookups, scans = _split(search.filters)
    either_lookups, either_scans = _split(search.either)
    sets = [await _numbers(match, segment, cooperative) for match in lookups]
    either: set[int] = set().union(*[await _numbers(match, segment, cooperative) for match in either_lookups])
    if search.either and not search.filters:
        either.update(*[await _numbers(match, segment, cooperative) for match in either_scans])
        either_scans = []
    if search.either and not either_scans:
        sets.append(either)
    candidates = sorted(set[int].intersection(*map(set, sets))) if sets else range(len(segment.records))
    numbers = await _matching_all(scans, segment, candidates, cooperative) if scans else candidates
    if not either_scans:
        return numbers
    return [
        number
        for number in numbers
        if number in either or await _any_matches(either_scans, segment, number, cooperative)
    ]


def candidate_segments(search: Search, segments: Sequence[IndexSegment]) -> Sequence[IndexSegment]:
    """Return the segments that may have matching packages: the others lack all of the whole values."""
    for needed in search.needed_lines:
        segments = [segment for segment in segments if not segment.lines.isdisjoint(needed)]
    return segments


async def _numbers(match: Match, segment: IndexSegment, cooperative: CooperativeYield) -> Set[int]:
    await cooperative.pause()
    return match.numbers_in(segment)


async def _any_matches(
    scans: Sequence[Match], segment: IndexSegment, number: int, cooperative: CooperativeYield
) -> bool:
    for scan in scans:
        await cooperative.pause()
        if scan.first_in(segment, number, number + 1) == number:
            return True
    return False


async def _matching_all(
    scans: Sequence[Match], segment: IndexSegment, candidates: Sequence[int], cooperative: CooperativeYield
) -> Sequence[int]:
    """Return the candidates that all scans match."""
    matching, scans, end = [], list(scans), len(segment.records)
    position = 0
    while position < len(candidates):
        number = following = candidates[position]
        for index, scan in enumerate(scans):
            await cooperative.pause()
            following = scan.first_in(segment, number, end)
            if following != number:
                scans.insert(0, scans.pop(index))  # The rarest scans come first.
                break
        if following == number:
            matching.append(number)
            position += 1
        else:
            position = bisect_left(candidates, following, position)
    return matching


def _split(matches: Sequence[Match]) -> tuple[Sequence[Match], Sequence[Match]]:
    """Return the lookups of whole values, and the scans."""
    lookups = [match for match in matches if match.of_whole_values]
    return lookups, [match for match in matches if not match.of_whole_values]
