"""Packages in JSON, and the views of callers on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from catalog_service.catalog.reader import Rings

ViewKind = tuple[bool, str]  # whether it includes disabled packages, and a ring


@dataclass(frozen=True)
class Fragment:
    """One package in JSON, as some rings see it."""

    package_id: str
    active: bool
    text: bytes
    rings: Rings = None


@dataclass(frozen=True)
class View:
    """The part of a catalog that a ring sees, which is one of the tenant's or `ALL_RINGS`."""

    include_disabled: bool
    ring: str
    hidden: frozenset[str] = frozenset()

    def shows(self, package_id: str, active: bool, rings: Rings) -> bool:
        """Whether a fragment with these properties is in the view."""
        return (
            (active or self.include_disabled)
            and (rings is None or self.ring in rings)
            and package_id not in self.hidden
        )


def same_views(fragments: Sequence[Fragment]) -> tuple[Mapping[ViewKind, ViewKind], ViewKind | None]:
    """Return the first kind of view that shows the same as each, and the first one that shows every fragment.

    The ring "" is each ring that no fragment names.
    """
    rings = {ring: None for fragment in fragments for ring in fragment.rings or ()}
    first: dict[tuple[int, ...], ViewKind] = {}
    same: dict[ViewKind, ViewKind] = {}
    for kind in product((True, False), ("", *rings)):
        view = View(*kind)
        shown = [n for n, item in enumerate(fragments) if view.shows(item.package_id, item.active, item.rings)]
        same[kind] = first.setdefault(tuple(shown), kind)
    return same, first.get(tuple(range(len(fragments))))
