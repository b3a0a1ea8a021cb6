"""What a package says of itself: the texts of its default language, and of further ones."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from catalog_service.model.manifest.values import Choice, LanguageTag, Listed, Records, Text, Url

WORD = Text(40)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What is shown before an installation, and must be agreed to."""

    agreement_label: Annotated[str, Text(100)] = ""
    agreement: Annotated[str, Text(10_000, lines=True)] = ""
    agreement_url: Url = ""


@dataclass(frozen=True, kw_only=True)
class Documentation:
    document_label: Annotated[str, Text(100)] = ""
    document_url: Url = ""


class IconFileType(StrEnum):
    PNG = "png"
    JPEG = "jpeg"
    ICO = "ico"


class IconTheme(StrEnum):
    DEFAULT = "default"
    LIGHT = "light"
    DARK = "dark"
    HIGH_CONTRAST = "highContrast"


@dataclass(frozen=True, kw_only=True)
class Icon:
    """A picture at an address; the package's logo is another."""

    icon_url: Url
    icon_file_type: Annotated[IconFileType, Choice(IconFileType)]
    icon_resolution: Annotated[
        str,
        Text(
            7,
            pattern=r"custom|(16|20|24|30|32|36|40|48|60|64|72|80|96|256)x\1",
            like="custom, or a resolution such as 64x64",
        ),
    ] = ""
    icon_theme: Annotated[IconTheme | None, Choice(IconTheme)] = None
    icon_sha256: Annotated[str, Text(64, pattern="[0-9A-Fa-f]{64}", like="a SHA-256 digest in hexadecimal")] = ""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What can be said in every language."""

    publisher_url: Url = ""
    publisher_support_url: Url = ""
    privacy_url: Url = ""
    author: Annotated[str, Text(256, least=2)] = ""
    package_url: Url = ""
    license: Annotated[str, Text(512, least=3)] = ""
    license_url: Url = ""
    copyright: Annotated[str, Text(512, least=3)] = ""
    copyright_url: Url = ""
    short_description: Annotated[str, Text(256, least=3)] = ""
    tags: Annotated[tuple[str, ...], Listed(WORD, 16)] = ()
    agreements: Annotated[tuple[Agreement, ...], Records(Agreement, 128)] = ()
    purchase_url: Url = ""
    installation_notes: Annotated[str, Text(10_000, lines=True)] = ""
    documentations: Annotated[tuple[Documentation, ...], Records(Documentation, 256)] = ()
    icons: Annotated[tuple[Icon, ...], Records(Icon, 1024)] = ()


@dataclass(frozen=True, kw_only=True)
class LocalTexts(Texts):
    """The same in a further language; what it does not say is as in the default one."""

    package_locale: LanguageTag
    publisher: Annotated[str, Text(256, least=2)] = ""
    package_name: Annotated[str, Text(256, least=2)] = ""
    description: Annotated[str, Text(10_000, least=3, lines=True)] = ""


@dataclass(frozen=True, kw_only=True)
class PackageManifest(Texts):
    """What a package says beside its name, publisher and description; these too are in the default language.

    That is `package_locale`, or `en-US` where it is empty. `locales` are the further ones.
    """

    package_locale: LanguageTag = ""
    moniker: Annotated[str, WORD] = ""
    locales: Annotated[tuple[LocalTexts, ...], Records(LocalTexts, 256)] = ()
