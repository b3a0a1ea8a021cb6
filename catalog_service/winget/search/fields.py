"""The fields that searches match, and the normal forms of their values."""

import re
import unicodedata
from enum import StrEnum


class Field(StrEnum):
    """The `PackageMatchField` of the protocol, and the publisher, which only free text searches."""

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
    PUBLISHER = "Publisher"

    @property
    def mark(self) -> str:
        """The first character of a line of this field; no value has it."""
        return _MARKS[self]


# Free text is searched in TEXTS. CODES identify installed programs and match as a whole only.
TEXTS = frozenset([Field.IDENTIFIER, Field.NAME, Field.PUBLISHER, Field.MONIKER, Field.COMMAND, Field.TAG])
CODES = frozenset([Field.FAMILY_NAME, Field.PRODUCT_CODE, Field.UPGRADE_CODE])
ANY_MARKET, NOT_IN = "*", "!"  # values of `MARKET`: all markets; the prefix of an excluded market
SEPARATOR = "\n"
_MARK_OF = "\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10\x11"
_MARKS = dict(zip(Field, _MARK_OF, strict=True))
_IGNORED = re.compile(r"[\W_]+")


def squeezed(text: str) -> str:
    """Return the letters and digits of a folded text, without accents."""
    return _IGNORED.sub("", text if text.isascii() else unicodedata.normalize("NFKD", text))
