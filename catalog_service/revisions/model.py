"""What moves a catalog: each write that it shows gives it a new revision, and says which package it was about.

A write announces itself, writes, and then settles: announced changes are the ones that may or may not be there. So a
crash between the two leaves a package that is looked at again by every reader, and never one that is shown as it was.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """The revision that a write led to, and the package that it was about."""

    revision: str
    package_id: str


@dataclass(frozen=True)
class Standing:
    """Where a catalog stands: its revision, the latest changes up to it, and the packages that are being changed."""

    revision: str
    latest: Sequence[Change] = ()
    unsettled: Set[str] = frozenset()

    def since(self, revision: str) -> Set[str] | None:
        """The packages that may have changed since a revision; None where that may be all."""
        if revision == self.revision:
            return self.unsettled
        for place, change in enumerate(self.latest):
            if change.revision == revision:
                return self.unsettled | {later.package_id for later in self.latest[place + 1 :]}
        return None


@dataclass(frozen=True)
class Look:
    """What one look at the database said of a catalog; `turn` counts the looks."""

    turn: int
    standing: Standing

    @property
    def revision(self) -> str:
        """What names all that is shown; "" while packages are being changed, and nothing can."""
        return "" if self.standing.unsettled else self.standing.revision
