"""Reads the files of a manifest and assembles it. Its installers inherit fields by the rules of winget's client."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from catalog_service.model.manifest.fields import Fields, validation_errors
from catalog_service.model.manifest.values import Source
from deploy.publish.files import open_regular
from deploy.winget_manifests.schema import files as schema
from deploy.winget_manifests.schema.versions import NEWEST, newer_fields
from deploy.winget_manifests.yaml_reader import MAX_BYTES, ManifestRefused, parse_yaml

KINDS: Mapping[str, type[schema.File]] = {
    "singleton": schema.SingletonFile,
    "version": schema.VersionFile,
    "defaultLocale": schema.DefaultLocaleFile,
    "locale": schema.LocaleFile,
    "installer": schema.InstallerFile,
}
MAX_REASONS = 5
PACKAGED = frozenset(["msix", "appx"])
# Installers of these types write an entry of Apps and Features.
WITH_ENTRY = frozenset(["exe", "msi", "inno", "nullsoft", "wix", "burn", "portable"])
# An installer's members of these objects replace the manifest's; all other fields are replaced as a whole.
BY_MEMBER = frozenset(["installer_switches", "installation_metadata"])
# An empty list, or an object with empty members only, is the same as none.
INHERITED_IF_EMPTY = frozenset(["apps_and_features_entries", "nested_installer_files", "dependencies"])


@dataclass(frozen=True)
class Manifest:
    """One version of a package. The installers have the fields that they inherit."""

    path: Path
    package_id: str
    version: str
    texts: schema.DefaultTexts
    locales: Sequence[schema.LocaleTexts]
    installers: Sequence[schema.Installer]
    channel: str = ""


def read_file(path: Path) -> schema.File:
    """Read a file of a manifest. Raises ManifestRefused and OSError."""
    with open(path, "rb", opener=open_regular) as file:
        return parse_file(file.read(MAX_BYTES + 1))


def stated_identity(path: Path) -> tuple[str, str] | None:
    """The package id and version that a refused file states, if it can be read at all."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            value = parse_yaml(file.read(MAX_BYTES + 1))
    except (ManifestRefused, OSError):
        return None
    match value:
        case {"PackageIdentifier": str(package_id), "PackageVersion": str(version)}:
            return package_id, version
    return None


def parse_file(content: bytes) -> schema.File:
    """Parse the bytes of a file. Raises ManifestRefused."""
    value = parse_yaml(content)
    kind = KINDS.get(str(value.get("ManifestType"))) if isinstance(value, dict) else None
    if kind is None:
        raise ManifestRefused(f"ManifestType: must be one of {', '.join(KINDS)}")
    try:
        file = kind.model_validate(value, context=Source.FILE, by_alias=True, by_name=False)
    except ValidationError as error:
        reasons = [f"{path}: {reason}" for path, reason in islice(validation_errors(error, kind), MAX_REASONS)]
        raise ManifestRefused("; ".join(reasons)) from None
    major, minor, _ = map(int, file.manifest_version.split("."))
    if major != 1 or minor > NEWEST:
        raise ManifestRefused(f"ManifestVersion: {file.manifest_version} is not known, only 1.0 to 1.{NEWEST}")
    if reasons := list(islice(newer_fields(value, minor), MAX_REASONS)):
        raise ManifestRefused("; ".join(reasons))
    return file


def assemble_manifest(path: Path, files: Sequence[schema.File]) -> Manifest:
    """Assemble the files of one package and version. Raises ManifestRefused if one is missing or two contradict."""
    counts = Counter(map(type, files))
    locales = [file for file in files if isinstance(file, schema.LocaleFile)]
    if not counts[schema.SingletonFile]:
        for kind in ("version", "defaultLocale", "installer"):
            if (count := counts[KINDS[kind]]) != 1:
                raise ManifestRefused(f"has {count} files of the type {kind} instead of one")
    elif len(files) > 1:
        raise ManifestRefused("has a singleton and other files beside it")
    texts = next(file for file in files if isinstance(file, schema.DefaultTexts))
    root = next(file for file in files if isinstance(file, schema.InstallersFile))
    _check_consistent(files, texts, locales)
    return Manifest(
        path=path,
        package_id=texts.package_identifier if isinstance(texts, schema.File) else "",
        version=root.package_version,
        texts=texts,
        locales=locales,
        installers=[_with_inherited_fields(root, installer) for installer in root.installers],
        channel=root.channel,
    )


def _check_consistent(
    files: Sequence[schema.File], texts: schema.DefaultTexts, locales: Sequence[schema.LocaleFile]
) -> None:
    for name in ("package_identifier", "package_version", "manifest_version"):
        if len(values := {getattr(file, name) for file in files}) > 1:
            raise ManifestRefused(f"its files differ: {' and '.join(sorted(values))}")
    languages = [texts.package_locale.casefold(), *(file.package_locale.casefold() for file in locales)]
    if len(set(languages)) < len(languages):
        raise ManifestRefused("has two files for one language")
    for file in files:
        if isinstance(file, schema.VersionFile) and file.default_locale.casefold() != languages[0]:
            raise ManifestRefused(f"DefaultLocale: {file.default_locale} is not the defaultLocale file's language")


def effective_type(installer: schema.InstallerFields) -> str:
    """Return the type of the program that is installed, for an archive that of its content; "" if it is missing."""
    return (installer.nested_installer_type if installer.installer_type == "zip" else installer.installer_type) or ""


def _with_inherited_fields(manifest: schema.InstallersFile, installer: schema.Installer) -> schema.Installer:
    inherited = {}
    for name in manifest.model_fields_set & schema.InstallerFields.model_fields.keys():
        own, common = getattr(installer, name), getattr(manifest, name)
        if name not in installer.model_fields_set or (name in INHERITED_IF_EMPTY and _is_empty(own)):
            inherited[name] = common
        elif name in BY_MEMBER:
            inherited[name] = common.model_copy(update={part: getattr(own, part) for part in own.model_fields_set})
    left_out = _not_inherited(installer.model_copy(update=inherited))
    return installer.model_copy(update={name: value for name, value in inherited.items() if name not in left_out})


def _not_inherited(whole: schema.Installer) -> Set[str]:
    names = set()
    if whole.installer_type != "zip":
        names |= {"nested_installer_type", "nested_installer_files"}
    kind = effective_type(whole)
    if kind not in PACKAGED:
        names.add("package_family_name")
    if kind not in WITH_ENTRY:
        names |= {"product_code", "apps_and_features_entries"}
    return names


def _is_empty(value: object) -> bool:
    return not any(vars(value).values()) if isinstance(value, Fields) else not value
