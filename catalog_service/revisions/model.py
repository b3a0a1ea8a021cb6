"""Revisions of a catalog: each write that the catalog shows gives it a new revision, with the changed package.

A write opens a change, writes, and then closes the change. After a crash in between, the change stays open, and every
reader reads its package again instead of showing an old state.
"""

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass

EVERY_PACKAGE = ""  # in place of a package id: readers read the whole catalog again


@dataclass(frozen=True)
class Change:
    """A package that a write changed, or `EVERY_PACKAGE`, and the revision after the write."""

    revision: str
    package_id: str


@dataclass(frozen=True)
class CatalogState:
    """A catalog's revision, the latest changes up to it, and the packages with open changes."""

    revision: str
    latest: Sequence[Change] = ()
    changing_ids: Set[str] = frozenset()

    @property
    def stable_revision(self) -> str:
        """The revision, or "" while packages are being changed: no revision names what a reader finds then."""
        return "" if self.changing_ids else self.revision

    def since(self, revision: str) -> Set[str] | None:
        """Return the packages that may have changed since a revision, None if that may be all."""
        if EVERY_PACKAGE in self.changing_ids:
            return None
        if revision == self.revision:
            return self.changing_ids
        for position, change in enumerate(self.latest):
            if change.revision == revision:
                return self.changing_ids | {later.package_id for later in self.latest[position + 1 :]}
        return None


# Returns the state of a tenant's catalog, without the latest changes if its revision is the second argument.
StateReader = Callable[[str, str], Awaitable[CatalogState]]
