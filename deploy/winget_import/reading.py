"""A manifest's files, and what they say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from deploy.publish.files import open_regular
from deploy.winget_import import yaml_text
from deploy.winget_import.merging import merged
from deploy.winget_import.problems import ManifestRefused
from deploy.winget_import.schema.installer_schema import Installer
from deploy.winget_import.schema.schema import (
    DefaultLocaleFile,
    File,
    InstallerFile,
    InstallersFile,
    LocaleFile,
    SingletonFile,
    VersionFile,
)
from deploy.winget_import.schema.text_schema import DefaultTexts, Texts
from deploy.winget_import.versions import NEWEST, too_new

KINDS: Mapping[str, type[File]] = {
    "singleton": SingletonFile,
    "version": VersionFile,
    "defaultLocale": DefaultLocaleFile,
    "locale": LocaleFile,
    "installer": InstallerFile,
}
MOST_REASONS = 5


@dataclass(frozen=True)
class Manifest:
    """One version of a package. `installers` have what the manifest says for all of them."""

    path: Path
    package_id: str
    version: str
    texts: DefaultTexts
    locales: Sequence[Texts]
    installers: Sequence[Installer]
    channel: str = ""


def read_file(path: Path) -> File:
    """A file of a manifest. Raises ManifestRefused, and OSError."""
    with open(path, "rb", opener=open_regular) as file:
        return parse(file.read(yaml_text.MOST_BYTES + 1))


def parse(content: bytes) -> File:
    """The same of the file's bytes."""
    value = yaml_text.read(content)
    kind = KINDS.get(str(value.get("ManifestType"))) if isinstance(value, dict) else None
    if kind is None:
        raise ManifestRefused(f"ManifestType: must be one of {', '.join(KINDS)}")
    try:
        file = kind.model_validate(value)
    except ValidationError as error:
        raise ManifestRefused(_told(error)) from None
    major, minor, _ = map(int, file.manifest_version.split("."))
    if major != 1 or minor > NEWEST:
        raise ManifestRefused(f"ManifestVersion: {file.manifest_version} is not known, only 1.0 to 1.{NEWEST}")
    if reasons := list(too_new(value, minor)):
        raise ManifestRefused("; ".join(reasons[:MOST_REASONS]))
    return file


def assemble(path: Path, files: Sequence[File]) -> Manifest:
    """What files of one package and version say together. Raises ManifestRefused where they are not a whole."""
    by_kind = {kind: [file for file in files if type(file) is kind] for kind in KINDS.values()}
    locales = [file for file in by_kind[LocaleFile] if isinstance(file, LocaleFile)]
    if not by_kind[SingletonFile]:
        for kind in (VersionFile, DefaultLocaleFile, InstallerFile):
            if len(by_kind[kind]) != 1:
                named = next(name for name, known in KINDS.items() if known is kind)
                raise ManifestRefused(f"has {len(by_kind[kind])} files of the type {named} instead of one")
    elif len(files) > 1:
        raise ManifestRefused("has a singleton and other files beside it")
    texts = next(file for file in files if isinstance(file, DefaultTexts))
    offered = next(file for file in files if isinstance(file, InstallersFile))
    _check_alike(files, texts, locales)
    return Manifest(
        path=path,
        package_id=texts.package_identifier if isinstance(texts, File) else "",
        version=offered.package_version,
        texts=texts,
        locales=locales,
        installers=[merged(offered, installer) for installer in offered.installers],
        channel=offered.channel or "",
    )


def _check_alike(files: Sequence[File], texts: DefaultTexts, locales: Sequence[LocaleFile]) -> None:
    for name in ("package_identifier", "package_version", "manifest_version"):
        if len(found := {getattr(file, name) for file in files}) > 1:
            raise ManifestRefused(f"its files differ: {' and '.join(sorted(found))}")
    languages = [texts.package_locale.casefold(), *(file.package_locale.casefold() for file in locales)]
    if len(set(languages)) < len(languages):
        raise ManifestRefused("has two files for one language")
    for file in files:
        if isinstance(file, VersionFile) and file.default_locale.casefold() != languages[0]:
            raise ManifestRefused(f"DefaultLocale: {file.default_locale} is not the defaultLocale file's language")


def _told(error: ValidationError) -> str:
    """What is wrong, in the manifest's own names."""
    reasons = []
    for found in error.errors(include_url=False, include_input=False)[:MOST_REASONS]:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).lstrip(".")
        said = {"missing": "is required", "extra_forbidden": "is not known"}.get(found["type"], found["msg"])
        reasons.append(f"{place}: {said.removeprefix('Value error, ')}")
    return "; ".join(reasons)
