"""The versions of a package that winget can install: stable ones that clients do not refuse."""

from collections.abc import Mapping, Sequence

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import FileType
from catalog_service.model.manifest.rules import STABLE, winget_refusals
from catalog_service.model.ordering import newest_first
from catalog_service.model.versions import PackageVersion

PACKAGED = frozenset([FileType.MSIX, FileType.APPX])


def installable_versions(entry: WholeEntry) -> Mapping[str, Sequence[PackageVersion]]:
    """Return the installers, one or more, by version string, the newest first.

    An inactive package, or one without a name or publisher, has none.
    """
    package = entry.package
    if not package.active or not package.name.strip() or not package.publisher.strip():
        return {}
    stable = newest_first(version for version in entry.names if version.channel == STABLE)
    refused = winget_refusals(stable)
    by_version: dict[str, list[PackageVersion]] = {}
    for version in stable:
        if version.uid not in refused:
            by_version.setdefault(version.version, []).append(version)
    return by_version
