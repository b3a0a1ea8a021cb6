"""Enforces the limit of clients without counting them.

Each client has a numbered slot of its tenant, and a unique index gives each slot to one client only. The usable slots
are limited, so races cannot exceed the limit and crashes cannot make a counter wrong.
"""

import secrets
from bisect import bisect_right
from collections.abc import Set as AbstractSet

SPARE = 64  # free slots to choose from, so that concurrent callers seldom choose the same


def allocate_slot(taken: AbstractSet[int], limit: int | None) -> int | None:
    """A random free slot; None if there are `limit` clients."""
    enough = len(taken) + SPARE
    usable = enough if limit is None else min(enough, usable_slots(taken, limit))
    free = [slot for slot in range(usable) if slot not in taken]
    return secrets.choice(free) if free else None


def usable_slots(taken: AbstractSet[int], limit: int) -> int:
    """How many slots, from 0 on, can all be taken without exceeding `limit` clients.

    Fewer than `limit` if clients have higher slots, from a time with a higher limit or none.
    """
    return bisect_right(range(limit + 1), limit, key=lambda end: end + sum(slot >= end for slot in taken)) - 1
