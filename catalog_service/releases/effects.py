"""The effect of a change of the policy on versions in flight: the rings whose machines are offered more, or less."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from catalog_service.model.releases import VersionRelease, is_offered
from catalog_service.releases.gates import Policy

SHOWN = ("uid", "package_id", "version", "channel")
ROWS = 100  # of each list in an answer; the totals count all versions
RingChange = tuple[VersionRelease, Sequence[str]]  # a version, and the rings whose machines get more or less


@dataclass
class PolicyEffect:
    """Versions in flight that the policy `after` offers to more machines, or to fewer, and infected ones it holds."""

    before: Policy
    after: Policy
    offered: list[RingChange] = field(default_factory=list)
    withdrawn: list[RingChange] = field(default_factory=list)
    held: list[VersionRelease] = field(default_factory=list)

    def add(self, version: VersionRelease, changed: VersionRelease) -> None:
        """Compare a version with what it would be. A machine of a ring that there is no more is in the last one."""
        old, new = self.before.effective_rings, self.after.effective_rings
        audiences = dict.fromkeys((*old, *new))
        had = {ring for ring in audiences if is_offered(version.stage, ring, old)}
        has = {ring for ring in audiences if is_offered(changed.stage, ring, new)}
        for rings, changes in ((has - had, self.offered), (had - has, self.withdrawn)):
            if rings:
                changes.append((version, [ring for ring in audiences if ring in rings]))

    def to_json(self) -> Mapping[str, Any]:
        """`offered`, `withdrawn` and `held`: rows of versions, each list with its total."""
        return {
            "offered": [{**_row(version), "rings": rings} for version, rings in self.offered[:ROWS]],
            "offered_total": len(self.offered),
            "withdrawn": [{**_row(version), "rings": rings} for version, rings in self.withdrawn[:ROWS]],
            "withdrawn_total": len(self.withdrawn),
            "held": version_rows(self.held),
            "held_total": len(self.held),
        }


def version_rows(versions: Iterable[Any]) -> Sequence[Mapping[str, str]]:
    """The names of the first versions of a list."""
    return [_row(version) for version in islice(versions, ROWS)]


def _row(version: Any) -> dict[str, Any]:
    return {name: getattr(version, name) for name in SHOWN}
