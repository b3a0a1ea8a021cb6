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
STABLE = "stable"  # Clients refuse manifests with a channel, so they see one channel only.
WINDOWS_FEATURE = re.compile("[A-Za-z0-9_-]+")
# Types without an entry of Apps and Features, and types of which an archive may have several files.
WITHOUT_ENTRY = {FileType.MSIX, FileType.APPX, FileType.FONT}
WITH_SEVERAL_FILES = {FileType.PORTABLE, FileType.FONT}
BAD_PACKAGE_ID = "must be two to eight parts of at most 32 characters, with dots between them"
NOT_FOR_TYPE = "is not for MSIX, APPX and fonts"
ONE_ITEM = "holds more than the one item that a portable program has"


@dataclass(frozen=True)
class Refusal:
    """The reason why winget clients refuse a version; without its subject if it is about a field of the creation form.

    The dashboard words `code` in other languages. `uid` is the version that clients take for this one.
    """

    field: str
    code: str
    reason: str
    uid: str = ""


def contradictions(version: PackageVersion) -> Iterator[Refusal]:
    """Yield the refused fields of one version."""
    manifest, kind = version.manifest, version.effective_type
    if not PACKAGE_ID.fullmatch(version.package_id):
        yield Refusal("package_id", "not_in_parts", BAD_PACKAGE_ID)
    if not VERSION.fullmatch(version.version):
        yield Refusal("package_version", "forbidden_character", 'must not hold \\ / : * ? " < > |')
    if kind in WITHOUT_ENTRY:
        if version.product_code:
            yield Refusal("productcode", "type_without_entry", NOT_FOR_TYPE)
        if manifest.apps_and_features_entries:
            yield Refusal("apps_and_features_entries", "type_without_entry", NOT_FOR_TYPE)
    if kind is FileType.PORTABLE and len(manifest.apps_and_features_entries) > 1:
        yield Refusal("apps_and_features_entries", "one_item_only", ONE_ITEM)
    if version.installer_type is FileType.PORTABLE and len(manifest.commands) > 1:
        yield Refusal("commands", "one_item_only", ONE_ITEM)
    if manifest.allowed_markets and manifest.excluded_markets:
        yield Refusal("excluded_markets", "other_market_list", "is not for a version that has allowed_markets")
    if not all(map(WINDOWS_FEATURE.fullmatch, version.dependencies.windows_features)):
        yield Refusal("dep_windows_features", "not_a_feature", "must have names of letters, digits, - and _ only")
    codes = [code.installer_return_code for code in manifest.expected_return_codes]
    if len({*codes, *manifest.installer_success_codes}) < len(codes) + len(manifest.installer_success_codes):
        yield Refusal("expected_return_codes", "repeats", "holds an exit code twice, or one of installer_success_codes")
    yield from _in_archive(version)


def _in_archive(version: PackageVersion) -> Iterator[Refusal]:
    aliases = version.manifest.portable_command_alias
    if aliases and (version.effective_type is not FileType.PORTABLE or len(aliases) != len(version.nested_paths)):
        yield Refusal("portable_command_alias", "per_path", "is for portable programs, once for each file_nested_path")
    if version.installer_type is not FileType.ZIP:
        return
    if version.nested_type in {None, FileType.ZIP}:
        yield Refusal("file_type_nested", "nested_type_required", "is required with ZIP, and not ZIP")
    paths = [path.casefold() for path in version.nested_paths]
    if not paths:
        yield Refusal("file_nested_path", "nested_path_required", "is required with ZIP")
    elif len(paths) > 1 and version.nested_type not in WITH_SEVERAL_FILES:
        yield Refusal("file_nested_path", "one_path", "may be sent once only, but for portable programs and fonts")
    elif len(set(paths)) < len(paths):
        yield Refusal("file_nested_path", "path_twice", "holds a path twice")


def package_refusal(package_id: str, versions: Iterable[PackageVersion]) -> Refusal | None:
    """Return the reason why winget clients see no version of a package, the newest first; None if they see one.

    A package without versions has a reason only if its id is refused.
    """
    if not PACKAGE_ID.fullmatch(package_id):
        return Refusal("package_id", "not_in_parts", BAD_PACKAGE_ID)
    not_stable = Refusal("", "no_stable_version", "No version is in the channel stable.")
    reasons = [next(contradictions(each), None) if each.channel == STABLE else not_stable for each in versions]
    return reasons[0] if reasons and all(reasons) else None


def winget_refusals(versions: Sequence[PackageVersion]) -> Mapping[str, Sequence[Refusal]]:
    """Return the reasons why winget clients refuse versions of one package, by uid; accepted versions are left out.

    Clients cannot distinguish some installers of one version. Only the first of them by uid is accepted.
    """
    refusals: dict[str, list[Refusal]] = defaultdict(list)
    accepted: dict[tuple[object, ...], str] = {}
    for version in sorted(versions, key=lambda version: version.uid):
        for refusal in contradictions(version):
            refusals[version.uid].append(refusal)
        if version.uid not in refusals:
            other = accepted.setdefault(version.client_key, version.uid)
            if other != version.uid:
                text = f"Version {other} already has an installer with the same type and architecture."
                refusals[version.uid].append(Refusal("", "same_installer", text, other))
    return refusals
