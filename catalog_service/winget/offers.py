"""What winget is offered of a package: its stable versions that it can install."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from catalog_service.entries import Entry
from catalog_service.enumerations import FileType
from catalog_service.version_model import PackageVersion

CHANNEL = "stable"  # There are no channels in the protocol that a client takes: which one is ours to say.
# Both stand in paths on the client's machine: one that is otherwise spoils the whole answer that it stands in.
_PART = r'[^.\s\\/:*?"<>|\x01-\x1f]{1,32}'
_PACKAGE_ID = re.compile(rf"{_PART}(?:\.{_PART}){{1,7}}")
_VERSION = re.compile(r'[^\\/:*?"<>|\x01-\x1f]{1,128}')
PACKAGED = frozenset([FileType.MSIX, FileType.APPX])


@dataclass(frozen=True)
class Offer:
    """A version string, and the installers of it: one or more."""

    version: str
    installers: Sequence[PackageVersion]


def offers(entry: Entry[PackageVersion]) -> Sequence[Offer]:
    """The newest first; none of a package that nobody may install now, or whose id or names a client would refuse.

    Of installers that a client cannot tell apart there is one.
    """
    package = entry.package
    names = package.name.strip() and package.publisher.strip()
    if not package.active or not names or not _PACKAGE_ID.fullmatch(package.package_id):
        return []
    by_version: dict[str, dict[tuple[str, ...], PackageVersion]] = {}
    for version in entry.versions:
        if version.channel == CHANNEL and not unfit(version):
            by_version.setdefault(version.version, {}).setdefault(_told_by(version), version)
    return [Offer(version, list(installers.values())) for version, installers in by_version.items()]


def unfit(version: PackageVersion) -> bool:
    """Whether a client would refuse this installer, and all others of the package with it."""
    if not _VERSION.fullmatch(version.version) or not version.sha256:
        return True
    if version.installer_type is not FileType.ZIP:
        return False
    several = version.nested_type in {FileType.PORTABLE, FileType.FONT}
    files = len(version.nested_paths)
    return version.nested_type in {None, FileType.ZIP} or not files or (files > 1 and not several)


def effective_type(version: PackageVersion) -> FileType:
    """What is installed in the end: of an archive what is in it."""
    return (
        version.nested_type
        if version.installer_type is FileType.ZIP and version.nested_type
        else version.installer_type
    )


def installer_locale(version: PackageVersion) -> str:
    """A language tag."""
    return version.manifest.installer_locale or version.locale.replace("_", "-")


def _told_by(version: PackageVersion) -> tuple[str, ...]:
    nested = version.nested_type or ""
    return version.installer_type, nested, version.architecture, installer_locale(version).casefold(), version.scope
