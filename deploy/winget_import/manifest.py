"""Reads a manifest's files and assembles the manifest."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from catalog_service.model.manifest.fields import validation_errors
from catalog_service.model.manifest.values import Source
from deploy.publish.files import open_regular
from deploy.winget_import.inheritance import with_inherited_fields
from deploy.winget_import.schema import files as schema
from deploy.winget_import.schema.installers import Installer
from deploy.winget_import.schema.versions import NEWEST, newer_fields
from deploy.winget_import.yaml_reader import MAX_BYTES, ManifestRefused, parse_yaml

KINDS: Mapping[str, type[schema.File]] = {
    "singleton": schema.SingletonFile,
    "version": schema.VersionFile,
    "defaultLocale": schema.DefaultLocaleFile,
    "locale": schema.LocaleFile,
    "installer": schema.InstallerFile,
}
MAX_REASONS = 5


@dataclass(frozen=True)
class Manifest:
    """One version of a package. The installers have the fields that they inherit."""

    path: Path
    package_id: str
    version: str
    texts: schema.DefaultTexts
    locales: Sequence[schema.LocaleTexts]
    installers: Sequence[Installer]
    channel: str = ""


def read_file(path: Path) -> schema.File:
    """Read a file of a manifest. Raises ManifestRefused and OSError."""
    with open(path, "rb", opener=open_regular) as file:
        return parse_file(file.read(MAX_BYTES + 1))


def parse_file(content: bytes) -> schema.File:
    """Parse the bytes of a file. Raises ManifestRefused."""
    value = parse_yaml(content)
    kind = KINDS.get(str(value.get("ManifestType"))) if isinstance(value, dict) else None
    if kind is None:
        raise ManifestRefused(f"ManifestType: must be one of {', '.join(KINDS)}")
    try:
        file = kind.model_validate(value, context=Source.FILE, by_alias=True, by_name=False)
    except ValidationError as error:
        reasons = [f"{place}: {reason}" for place, reason in islice(validation_errors(error), MAX_REASONS)]
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
        installers=[with_inherited_fields(root, installer) for installer in root.installers],
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
