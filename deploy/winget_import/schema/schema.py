"""The files of a manifest as the newest schema has them; what older ones do not have is in `versions`."""

from typing import Annotated, Literal

from pydantic import Field

from deploy.winget_import.schema.installer_schema import Installer, InstallerFields
from deploy.winget_import.schema.text_schema import DefaultTexts, Texts
from deploy.winget_import.schema.values import Fields, LanguageTag, ManifestVersion, PackageId, PackageVersion, text


class File(Fields):
    """What stands in every file."""

    package_identifier: PackageId
    package_version: PackageVersion
    manifest_version: ManifestVersion


class VersionFile(File):
    manifest_type: Literal["version"]
    default_locale: LanguageTag


class LocaleFile(File, Texts):
    manifest_type: Literal["locale"]


class DefaultLocaleFile(File, DefaultTexts):
    manifest_type: Literal["defaultLocale"]


class InstallersFile(File, InstallerFields):
    channel: Annotated[str, text(16)] | None = None
    installers: Annotated[list[Installer], Field(min_length=1, max_length=1024)]


class InstallerFile(InstallersFile):
    manifest_type: Literal["installer"]


class SingletonFile(InstallersFile, DefaultTexts):
    manifest_type: Literal["singleton"]
    installers: Annotated[list[Installer], Field(min_length=1, max_length=1)]
