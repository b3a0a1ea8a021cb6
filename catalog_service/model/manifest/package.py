"""The manifest of a package: its texts in the default language and in further ones."""

from typing import Annotated, Literal, get_args

from catalog_service.model.manifest.fields import Fields
from catalog_service.model.manifest.lists import Listed, Records
from catalog_service.model.manifest.values import SHA256, Choice, LanguageTag, Text, Url

WORD = Text(40)
IconFileType = Literal["png", "jpeg", "ico"]
IconTheme = Literal["default", "light", "dark", "highContrast"]


class Agreement(Fields):
    """A text that the user must accept before an installation."""

    agreement_label: Annotated[str, Text(100)] = ""
    agreement: Annotated[str, Text(10_000, lines=True)] = ""
    agreement_url: Url = ""


class Documentation(Fields):
    document_label: Annotated[str, Text(100)] = ""
    document_url: Url = ""


class Icon(Fields):
    """An image at an address; the package's logo is another."""

    icon_url: Url
    icon_file_type: Annotated[IconFileType, Choice(get_args(IconFileType))]
    icon_resolution: Annotated[
        str,
        Text(
            7,
            pattern=r"custom|(16|20|24|30|32|36|40|48|60|64|72|80|96|256)x\1",
            like="custom, or a resolution such as 64x64",
        ),
    ] = ""
    icon_theme: Annotated[IconTheme | None, Choice(get_args(IconTheme))] = None
    icon_sha256: Annotated[str, SHA256] = ""


class Texts(Fields):
    """The texts that every language may have."""

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
    tags: Annotated[tuple[str, ...], Listed(16, WORD)] = ()
    agreements: Annotated[tuple[Agreement, ...], Records(128)] = ()
    purchase_url: Url = ""
    installation_notes: Annotated[str, Text(10_000, lines=True)] = ""
    documentations: Annotated[tuple[Documentation, ...], Records(256)] = ()
    icons: Annotated[tuple[Icon, ...], Records(1024)] = ()


class LocalTexts(Texts):
    """The texts of a further language; missing ones are as in the default language."""

    package_locale: LanguageTag
    publisher: Annotated[str, Text(256, least=2)] = ""
    package_name: Annotated[str, Text(256, least=2)] = ""
    description: Annotated[str, Text(10_000, least=3, lines=True)] = ""


class PackageManifest(Texts):
    """The texts of a package beside its name, publisher and description, all in the default language.

    The default language is `package_locale`, or `en-US` if that is empty. `locales` are the further ones.
    """

    package_locale: LanguageTag = ""
    moniker: Annotated[str, WORD] = ""
    locales: Annotated[tuple[LocalTexts, ...], Records(256)] = ()
