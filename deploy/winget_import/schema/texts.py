"""The texts of a manifest in one language."""

from typing import Annotated

from catalog_service.model.manifest.package import WORD, LocalTexts
from catalog_service.model.manifest.values import Text
from catalog_service.model.manifest.version import ReleaseTexts


class LocaleTexts(LocalTexts, ReleaseTexts):
    """The texts of a further language."""


class DefaultTexts(LocaleTexts):
    """The texts of the default language, some of them required."""

    publisher: Annotated[str, Text(256, least=2)]
    package_name: Annotated[str, Text(256, least=2)]
    license: Annotated[str, Text(512, least=3)]
    short_description: Annotated[str, Text(256, least=3)]
    moniker: Annotated[str, WORD] = ""
