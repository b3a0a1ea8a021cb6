"""The stage of a version: the rings of clients that it is offered to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from common.tenants import ALL_RINGS, DEFAULT_RING


class ReleaseStatus(StrEnum):
    """The stop of a version, if any."""

    ACTIVE = "active"
    PAUSED = "paused"  # It stays where it is.
    HELD = "held"  # Nobody gets it until it is resumed.
    ROLLED_BACK = "rolled_back"  # Nobody gets it until it is resumed before the first ring.
    RETIRED = "retired"  # Retention hides it, and deletes it some days later.


@dataclass(frozen=True)
class Stage:
    """The rings that a version has entered, the latest last; `ALL_RINGS` after it has entered the last ring.

    A version without a stage was published without release control: it is in all rings.
    """

    rings: tuple[str, ...] = ()
    status: ReleaseStatus = ReleaseStatus.ACTIVE

    @property
    def is_withdrawn(self) -> bool:
        return self.status not in {ReleaseStatus.ACTIVE, ReleaseStatus.PAUSED}

    def level(self, rings: Sequence[str]) -> int:
        """The position of the furthest of a tenant's rings that the version has entered, -1 for none."""
        if ALL_RINGS in self.rings:
            return len(rings) - 1
        return max((position for position, ring in enumerate(rings) if ring in self.rings), default=-1)


def stage_of(document: Mapping[str, Any] | None) -> Stage | None:
    """Return the stage in a version's document, None if it has none."""
    return Stage(tuple(document["rings"]), ReleaseStatus(document["status"])) if document else None


def known_ring(ring: str, rings: Sequence[str]) -> str:
    """Return the ring, or the last of a tenant's rings if it has no such ring."""
    if ring == ALL_RINGS or ring in rings:
        return ring
    return rings[-1] if rings else DEFAULT_RING


def is_offered(stage: Stage | None, ring: str, rings: Sequence[str]) -> bool:
    """Whether a version in a stage is offered to the clients of a ring, or of the last one if there is no such ring.

    `ALL_RINGS` is for callers who see every version. `rings` are the tenant's, in order; none is one, `DEFAULT_RING`.
    """
    if stage is None or ring == ALL_RINGS:
        return True
    if stage.is_withdrawn:
        return False
    rings = rings or (DEFAULT_RING,)
    return rings.index(known_ring(ring, rings)) <= stage.level(rings)
