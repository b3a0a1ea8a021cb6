"""The versions of a package that winget can install: stable ones that clients do not refuse."""

from collections.abc import Sequence
from dataclasses import dataclass

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import FileType
from catalog_service.model.manifest.rules import winget_refusals
from catalog_service.model.ordering import newest_first
from catalog_service.model.versions import PackageVersion

CHANNEL = "stable"  # Clients refuse manifests with a channel, so this one is fixed here.
PACKAGED = frozenset([FileType.MSIX, FileType.APPX])


@dataclass(frozen=True)
class InstallableVersion:
    """A version string and its installers, one or more."""

    version: str
    installers: Sequence[PackageVersion]


def installable_versions(entry: WholeEntry) -> Sequence[InstallableVersion]:
    """Return the newest first; none of an inactive package or of one without a name or publisher."""
    package = entry.package
    if not package.active or not package.name.strip() or not package.publisher.strip():
        return []
    stable = newest_first(version for version in entry.names if version.channel == CHANNEL)
    refused = winget_refusals(stable)
    by_version: dict[str, list[PackageVersion]] = {}
    for version in stable:
        if version.uid not in refused:
            by_version.setdefault(version.version, []).append(version)
    return [InstallableVersion(version, installers) for version, installers in by_version.items()]
