"""Generated catalogs whose versions are in stages, and the plain rule of the versions that a ring gets."""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from catalog_service.catalog.reader import CatalogEntry, Entry, WholeEntry
from catalog_service.catalog.revision_store import EVERY_PACKAGE, CatalogState, Change
from catalog_service.model.releases import ReleaseStatus, Stage
from catalog_service.model.versions import PackageVersion, VersionName
from common.tenants import ALL_RINGS
from tests.support.samples.winget_factories import make_entry, make_version

FIVE = ("pilot", "early", "broad", "late", "everyone")
RINGS = st.sampled_from([(), ("everyone",), ("pilot", "everyone"), ("everyone", "pilot"), FIVE, FIVE])
CALLER_RINGS = st.sampled_from([ALL_RINGS, "", "removed", *FIVE])
PACKAGE_IDS = st.integers(0, 11).map("Acme.App{:02}".format)
BATCH = 3  # packages that are read at once
_STAGES = st.none() | st.builds(
    Stage,
    st.lists(st.sampled_from([*FIVE, ALL_RINGS, "removed"]), max_size=3).map(tuple),
    st.sampled_from([ReleaseStatus.ACTIVE, ReleaseStatus.ACTIVE, *ReleaseStatus]),
)
# The stages and channels of a package's versions, and whether the package is active.
PACKAGES = st.tuples(
    st.lists(st.tuples(_STAGES, st.sampled_from(["stable", "stable", "beta"])), max_size=4),
    st.sampled_from([True, True, False]),
)
PackageSample = tuple[list[tuple[Stage | None, str]], bool]


@dataclass
class StagedCatalog:
    """A tenant's catalog that changes; its states and reads are those of the stores."""

    rings: tuple[str, ...] = ()
    entries: dict[str, WholeEntry] = field(default_factory=dict)
    latest: list[Change] = field(default_factory=lambda: [Change("0", EVERY_PACKAGE)])
    is_changing: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def state(self, tenant_id: str, known_revision: str) -> CatalogState:
        changing = [EVERY_PACKAGE] if self.is_changing else []
        return CatalogState(self.latest[-1].revision, list(self.latest), frozenset(changing))

    async def read_rings(self, tenant_id: str) -> Sequence[str]:
        return self.rings

    async def read(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[WholeEntry]]:
        found = [entry for name, entry in sorted(self.entries.items()) if package_ids is None or name in package_ids]
        for start in range(0, len(found), BATCH):
            yield found[start : start + BATCH]

    async def read_names(
        self, tenant_id: str, package_ids: Collection[str] | None = None
    ) -> AsyncIterator[Sequence[CatalogEntry]]:
        async for entries in self.read(tenant_id, package_ids):
            yield [Entry(entry.package, [_name(version) for version in entry.names]) for entry in entries]

    def put(self, package_id: str, sample: PackageSample) -> None:
        """Add or replace a package. Each version has its own command and product code."""
        stages, active = sample
        versions = [
            make_version(
                package_id,
                version=f"1.{number}",
                channel=channel,
                product_code=f"{{{next(self._numbers):08X}-89AB-CDEF-0123-456789ABCDEF}}",
                commands=(f"run{next(self._numbers)}",),
                stage=stage,
            )
            for number, (stage, channel) in enumerate(stages)
        ]
        package = make_entry(package_id, active=active, name=package_id, tags=("tool",)).package
        self.entries[package_id] = Entry(package, versions)
        self._change(package_id)

    def remove(self, package_id: str) -> None:
        self.entries.pop(package_id, None)
        self._change(package_id)

    def set_rings(self, rings: tuple[str, ...], *, is_changing: bool) -> None:
        """Replace the rings. The change stays open if `is_changing`."""
        self.rings, self.is_changing = rings, is_changing
        if not is_changing:
            self.latest.clear()
            self._change(EVERY_PACKAGE)

    def change(self, kind: str, *values: Any) -> None:
        """Make a change of a generated test: `put`, `remove` or `rings`."""
        match kind:
            case "put":
                self.put(*values)
            case "remove":
                self.remove(*values)
            case "rings":
                self.set_rings(values[0], is_changing=values[1])

    def seen_from(self, ring: str) -> Mapping[str, Sequence[PackageVersion]]:
        """The versions that a ring gets of each package that it sees."""
        seen = {}
        for package_id, entry in sorted(self.entries.items()):
            versions = [version for version in entry.names if is_seen(version.stage, ring, self.rings)]
            if versions or ring == ALL_RINGS or not (self.rings or entry.names):
                seen[package_id] = versions
        return seen

    def _change(self, package_id: str) -> None:
        self.latest.append(Change(str(next(self._numbers)), package_id))


def _name(version: PackageVersion) -> VersionName:
    return VersionName(version.package_id, version.version, version.uid, version.stage)


def is_seen(stage: Stage | None, ring: str, rings: Sequence[str]) -> bool:
    """The rule in plain words: a ring gets what it, or a later ring, has entered, unless that was withdrawn."""
    if stage is None or ring == ALL_RINGS:
        return True
    if stage.status in {"held", "rolled_back", "retired"}:
        return False
    own = ring if ring in rings else (rings or ("everyone",))[-1]
    later = [*rings][[*rings].index(own) :] if rings else ["everyone"]
    return ALL_RINGS in stage.rings or any(entered in later for entered in stage.rings)
