"""The rules of winget clients: they refuse a whole manifest that breaks one."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog_service.model.enumerations import FileType
from catalog_service.model.versions import PackageVersion

# Clients use both in paths, and refuse a whole response with another id or version.
_PART = r'[^.\s\\/:*?"<>|\x01-\x1f]{1,32}'
PACKAGE_ID = re.compile(rf"{_PART}(?:\.{_PART}){{1,7}}")
VERSION = re.compile(r'[^\\/:*?"<>|\x01-\x1f]+')
BAD_PACKAGE_ID = "must be two to eight parts of at most 32 characters, with dots between them"
STABLE = "stable"  # Clients refuse manifests with a channel, so they see one channel only.
NOT_STABLE = "No version is in the channel stable."
WINDOWS_FEATURE = re.compile("[A-Za-z0-9_-]+")
# Types without an entry of Apps and Features, and types of which an archive may have several files.
WITHOUT_ENTRY = {FileType.MSIX, FileType.APPX, FileType.FONT}
WITH_SEVERAL_FILES = {FileType.PORTABLE, FileType.FONT}


@dataclass(frozen=True)
class Contradiction:
    """A field of the creation form, and the reason why winget clients refuse its value."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


def contradictions(version: PackageVersion) -> Iterator[Contradiction]:
    """Yield the refused fields of one version."""
    manifest, kind = version.manifest, version.effective_type
    if not PACKAGE_ID.fullmatch(version.package_id):
        yield Contradiction("package_id", BAD_PACKAGE_ID)
    if not VERSION.fullmatch(version.version):
        yield Contradiction("package_version", 'must not hold \\ / : * ? " < > |')
    if kind in WITHOUT_ENTRY:
        reason = "is not for MSIX, APPX and fonts"
        if version.product_code:
            yield Contradiction("productcode", reason)
        if manifest.apps_and_features_entries:
            yield Contradiction("apps_and_features_entries", reason)
    if kind is FileType.PORTABLE and len(manifest.apps_and_features_entries) > 1:
        yield Contradiction("apps_and_features_entries", "holds more than the one item that a portable program has")
    if version.installer_type is FileType.PORTABLE and len(manifest.commands) > 1:
        yield Contradiction("commands", "holds more than the one item that a portable program has")
    if manifest.allowed_markets and manifest.excluded_markets:
        yield Contradiction("excluded_markets", "is not for a version that has allowed_markets")
    if not all(map(WINDOWS_FEATURE.fullmatch, version.dependencies.windows_features)):
        yield Contradiction("dep_windows_features", "must have names of letters, digits, - and _ only")
    codes = [code.installer_return_code for code in manifest.expected_return_codes]
    if len({*codes, *manifest.installer_success_codes}) < len(codes) + len(manifest.installer_success_codes):
        yield Contradiction("expected_return_codes", "holds an exit code twice, or one of installer_success_codes")
    yield from _in_archive(version)


def _in_archive(version: PackageVersion) -> Iterator[Contradiction]:
    aliases = version.manifest.portable_command_alias
    if aliases and (version.effective_type is not FileType.PORTABLE or len(aliases) != len(version.nested_paths)):
        yield Contradiction("portable_command_alias", "is for portable programs, once for each file_nested_path")
    if version.installer_type is not FileType.ZIP:
        return
    if version.nested_type in {None, FileType.ZIP}:
        yield Contradiction("file_type_nested", "is required with ZIP, and not ZIP")
    paths = [path.casefold() for path in version.nested_paths]
    if not paths:
        yield Contradiction("file_nested_path", "is required with ZIP")
    elif len(paths) > 1 and version.nested_type not in WITH_SEVERAL_FILES:
        yield Contradiction("file_nested_path", "may be sent once only, but for portable programs and fonts")
    elif len(set(paths)) < len(paths):
        yield Contradiction("file_nested_path", "holds a path twice")


def package_refusal(package_id: str, versions: Iterable[PackageVersion]) -> str:
    """Return the reason why winget clients see no version of a package, the newest first; "" if they see one.

    A package without versions has a reason only if its id is refused.
    """
    if not PACKAGE_ID.fullmatch(package_id):
        return str(Contradiction("package_id", BAD_PACKAGE_ID))
    reasons = [
        next(map(str, contradictions(version)), "") if version.channel == STABLE else NOT_STABLE for version in versions
    ]
    return reasons[0] if reasons and all(reasons) else ""


def winget_refusals(versions: Sequence[PackageVersion]) -> Mapping[str, Sequence[str]]:
    """Return the reasons why winget clients refuse versions of one package, by uid; accepted versions are left out.

    Clients cannot distinguish some installers of one version. Only the first of them by uid is accepted.
    """
    reasons: dict[str, list[str]] = defaultdict(list)
    accepted: dict[tuple[object, ...], str] = {}
    for version in sorted(versions, key=lambda version: version.uid):
        for contradiction in contradictions(version):
            reasons[version.uid].append(str(contradiction))
        if version.uid not in reasons:
            other = accepted.setdefault(version.client_key, version.uid)
            if other != version.uid:
                reasons[version.uid].append(f"The version {other} has an installer that cannot be told from this one.")
    return reasons
