"""What a search looks at, and how values are written there."""

import re
import unicodedata
from enum import StrEnum


class Field(StrEnum):
    """The `PackageMatchField` of the protocol."""

    IDENTIFIER = "PackageIdentifier"
    NAME = "PackageName"
    MONIKER = "Moniker"
    COMMAND = "Command"
    TAG = "Tag"
    FAMILY_NAME = "PackageFamilyName"
    PRODUCT_CODE = "ProductCode"
    UPGRADE_CODE = "UpgradeCode"
    NORMALIZED_NAME = "NormalizedPackageNameAndPublisher"
    MARKET = "Market"
    INSTALLER_TYPE = "HasInstallerType"

    @property
    def mark(self) -> str:
        """What a line of this field begins with: a character that no value holds."""
        return _MARKS[self]


# What is typed at random is looked for in the first; the second say what is installed, and are known whole or not.
TEXTS = frozenset([Field.IDENTIFIER, Field.NAME, Field.MONIKER, Field.COMMAND, Field.TAG])
CODES = frozenset([Field.FAMILY_NAME, Field.PRODUCT_CODE, Field.UPGRADE_CODE])
ANY_MARKET, NOT_IN = "*", "!"  # values of `MARKET`: everywhere, and before a market: but not there
SEPARATOR = "\n"
_MARK_OF = "\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10"
_MARKS = dict(zip(Field, _MARK_OF, strict=True))
_NOT_SAID = re.compile(r"[\W_]+")


def folded(text: str) -> str:
    """The same for all spellings that differ in letter case only."""
    if text.isascii():
        return text.casefold()
    # Once more at the end: a capital may fold into parts that its small letter is composed of.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def squeezed(text: str) -> str:
    """What is left of a folded text without accents, and without all but letters and digits."""
    return _NOT_SAID.sub("", text if text.isascii() else unicodedata.normalize("NFKD", text))
