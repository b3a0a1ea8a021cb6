"""What a manifest may say in each language, as the newest schema has it."""

from typing import Annotated, Literal

from deploy.winget_import.schema.values import Fields, LanguageTag, Sha256, Url, Word, many, some, text


class Agreement(Fields):
    agreement_label: Annotated[str, text(100)] | None = None
    agreement: Annotated[str, text(10_000)] | None = None
    agreement_url: Url | None = None


class Documentation(Fields):
    document_label: Annotated[str, text(100)] | None = None
    document_url: Url | None = None


class Icon(Fields):
    icon_url: Url
    icon_file_type: Literal["png", "jpeg", "ico"]
    icon_resolution: (
        Literal[
            "custom",
            "16x16",
            "20x20",
            "24x24",
            "30x30",
            "32x32",
            "36x36",
            "40x40",
            "48x48",
            "60x60",
            "64x64",
            "72x72",
            "80x80",
            "96x96",
            "256x256",
        ]
        | None
    ) = None
    icon_theme: Literal["default", "light", "dark", "highContrast"] | None = None
    icon_sha256: Sha256 | None = None


class Texts(Fields):
    """What is said in every language."""

    package_locale: LanguageTag
    publisher: Annotated[str, text(256, 2)] | None = None
    publisher_url: Url | None = None
    publisher_support_url: Url | None = None
    privacy_url: Url | None = None
    author: Annotated[str, text(256, 2)] | None = None
    package_name: Annotated[str, text(256, 2)] | None = None
    package_url: Url | None = None
    license: Annotated[str, text(512, 3)] | None = None
    license_url: Url | None = None
    copyright: Annotated[str, text(512, 3)] | None = None
    copyright_url: Url | None = None
    short_description: Annotated[str, text(256, 3)] | None = None
    description: Annotated[str, text(10_000, 3)] | None = None
    tags: Annotated[list[Word], some(16)] | None = None
    agreements: Annotated[list[Agreement], many(128)] | None = None
    release_notes: Annotated[str, text(10_000)] | None = None
    release_notes_url: Url | None = None
    purchase_url: Url | None = None
    installation_notes: Annotated[str, text(10_000)] | None = None
    documentations: Annotated[list[Documentation], many(256)] | None = None
    icons: Annotated[list[Icon], many(1024)] | None = None


class DefaultTexts(Texts):
    """The same in the default language, in which some of it must be said."""

    publisher: Annotated[str, text(256, 2)]
    package_name: Annotated[str, text(256, 2)]
    license: Annotated[str, text(512, 3)]
    short_description: Annotated[str, text(256, 3)]
    moniker: Word | None = None
