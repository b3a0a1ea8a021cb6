"""What winget is offered of a package: its stable versions that clients do not refuse."""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import FileType
from catalog_service.model.manifest.rules import winget_refusals
from catalog_service.model.ordering import newest_first
from catalog_service.model.versions import PackageVersion

CHANNEL = "stable"  # There are no channels in the protocol that a client takes: which one is ours to say.
PACKAGED = frozenset([FileType.MSIX, FileType.APPX])


@dataclass(frozen=True)
class InstallableVersion:
    """A version string, and the installers of it: one or more."""

    version: str
    installers: Sequence[PackageVersion]


def installable_versions(entry: WholeEntry) -> Sequence[InstallableVersion]:
    """The newest first; none of a package that nobody may install now, or that has no name to be shown."""
    package = entry.package.package
    if not package.active or not package.name.strip() or not package.publisher.strip():
        return []
    stable = newest_first(version for version in entry.names if version.channel == CHANNEL)
    refused = winget_refusals(stable)
    by_version: dict[str, list[PackageVersion]] = {}
    for version in stable:
        if version.uid not in refused:
            by_version.setdefault(version.version, []).append(version)
    return [InstallableVersion(version, installers) for version, installers in by_version.items()]
