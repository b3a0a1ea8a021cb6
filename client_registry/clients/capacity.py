"""How the largest number of clients is kept without counting.

Every client sits on a numbered seat of its tenant, and a unique index lets no two have the same. With the seats that
may be taken limited, the rows themselves are the count: no race overruns it, and no crash makes it drift.
"""

import secrets
from bisect import bisect_right
from collections.abc import Set as AbstractSet

SPARE = 64  # free seats to choose from, where there are that many


def allocate_slot(taken: AbstractSet[int], limit: int | None) -> int | None:
    """A seat to try, None where `limit` clients are there. Any free one, so that callers at once seldom meet."""
    enough = len(taken) + SPARE
    usable = enough if limit is None else min(enough, usable_seats(taken, limit))
    free = [seat for seat in range(usable) if seat not in taken]
    return secrets.choice(free) if free else None


def usable_seats(taken: AbstractSet[int], limit: int) -> int:
    """How many seats, from 0 on, could all be taken without there being more than `limit` clients.

    Fewer than `limit` where clients sit beyond: they came when the limit was higher, or none.
    """
    return bisect_right(range(limit + 1), limit, key=lambda end: end + sum(seat >= end for seat in taken)) - 1
