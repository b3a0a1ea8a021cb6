"""The files of a manifest in the newest version of winget's schema; `versions` has what older versions lack."""

from typing import Annotated, Literal

from pydantic import Field

from catalog_service.model.manifest.fields import Fields
from catalog_service.model.manifest.package import WORD, LocalTexts
from catalog_service.model.manifest.values import LanguageTag, Text
from catalog_service.model.manifest.version import ReleaseTexts
from deploy.winget_import.schema.installers import Installer, InstallerFields, PackageId, PackageVersion

_NUMBER = r"(0|[1-9][0-9]{0,4})"
ManifestVersion = Annotated[str, Text(20, pattern=rf"{_NUMBER}(\.{_NUMBER}){{2}}", like="a version such as 1.10.0")]


class File(Fields):
    """The fields of every file."""

    package_identifier: PackageId
    package_version: PackageVersion
    manifest_version: ManifestVersion


class VersionFile(File):
    manifest_type: Literal["version"]
    default_locale: LanguageTag


class LocaleTexts(LocalTexts, ReleaseTexts):
    """The texts of a further language."""


class DefaultTexts(LocaleTexts):
    """The texts of the default language, some of them required."""

    publisher: Annotated[str, Text(256, least=2)]
    package_name: Annotated[str, Text(256, least=2)]
    license: Annotated[str, Text(512, least=3)]
    short_description: Annotated[str, Text(256, least=3)]
    moniker: Annotated[str, WORD] = ""


class LocaleFile(File, LocaleTexts):
    manifest_type: Literal["locale"]


class DefaultLocaleFile(File, DefaultTexts):
    manifest_type: Literal["defaultLocale"]


class InstallersFile(File, InstallerFields):
    channel: Annotated[str, Text(16)] = ""
    installers: Annotated[list[Installer], Field(min_length=1, max_length=1024)]


class InstallerFile(InstallersFile):
    manifest_type: Literal["installer"]


class SingletonFile(InstallersFile, DefaultTexts):
    manifest_type: Literal["singleton"]
    installers: Annotated[list[Installer], Field(min_length=1, max_length=1)]
