"""The values of a version's fields. The specification and winget define them."""

from enum import StrEnum


class Architecture(StrEnum):
    X64 = "x64"
    X86 = "x86"
    ARM = "arm"
    ARM64 = "arm64"


class FileType(StrEnum):
    """The kind of an installer, or of the one nested in it."""

    EXE = "EXE"
    MSI = "MSI"
    MSIX = "MSIX"
    APPX = "APPX"
    ZIP = "ZIP"
    INNO = "INNO"
    NULLSOFT = "NULLSOFT"
    WIX = "WIX"
    BURN = "BURN"
    # These are not in the specification, but in winget's schema.
    PORTABLE = "PORTABLE"
    FONT = "FONT"

    @property
    def suffix(self) -> str:
        """The ending of such a file on Windows."""
        return _SUFFIXES.get(self, f".{self.lower()}")

    @property
    def client_type(self) -> "FileType":
        """The type for winget clients, which have one type for MSIX and APPX."""
        return FileType.MSIX if self is FileType.APPX else self


_SUFFIXES = {
    FileType.WIX: ".msi",
    FileType.INNO: ".exe",
    FileType.NULLSOFT: ".exe",
    FileType.BURN: ".exe",
    FileType.PORTABLE: ".exe",
    FileType.FONT: ".ttf",
}


class Scope(StrEnum):
    MACHINE = "machine"
    USER = "user"


class Locale(StrEnum):
    """The last three have an underscore, as specified."""

    EN_US = "en-US"
    DE_DE = "de-DE"
    DE_AT = "de-AT"
    DE_CH = "de-CH"
    EN_GB = "en-GB"
    EN_CA = "en-CA"
    EN_AU = "en-AU"
    FR_FR = "fr-FR"
    FR_CA = "fr-CA"
    FR_BE = "fr-BE"
    ES_ES = "es-ES"
    ES_MX = "es-MX"
    IT_IT = "it-IT"
    IT_CH = "it-CH"
    PT_PT = "pt-PT"
    PT_BR = "pt-BR"
    JA_JP = "ja-JP"
    KO_KR = "ko_KR"
    ZH_CN = "zh_CN"
    ZH_TW = "zh_TW"


class UpgradeBehavior(StrEnum):
    """The way an installation treats an older version."""

    INSTALL = "install"
    UNINSTALL_PREVIOUS = "uninstallPrevious"
    DENY = "deny"


class Switch(StrEnum):
    """The switches of an installer, as forms name them after `switch_`. winget added the last two."""

    SILENT = "Silent"
    SILENT_WITH_PROGRESS = "SilentWithProgress"
    INTERACTIVE = "Interactive"
    INSTALL_LOCATION = "InstallLocation"
    LOG = "Log"
    UPGRADE = "Upgrade"
    CUSTOM = "Custom"
    REPAIR = "Repair"
