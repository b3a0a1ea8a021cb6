"""A version of a package, and the values that its fields may have (sections 2.2 and 2.4)."""

from dataclasses import dataclass, field
from enum import StrEnum


class Architecture(StrEnum):
    """Section 2.4."""

    X64 = "x64"
    X86 = "x86"
    ARM = "arm"
    ARM64 = "arm64"


class FileType(StrEnum):
    """The kind of an installer, or of the one nested in it (section 2.4)."""

    EXE = "EXE"
    MSI = "MSI"
    MSIX = "MSIX"
    APPX = "APPX"
    ZIP = "ZIP"
    INNO = "INNO"
    NULLSOFT = "NULLSOFT"
    WIX = "WIX"
    BURN = "BURN"

    @property
    def suffix(self) -> str:
        """How a file of this type ends on Windows."""
        return {FileType.WIX: ".msi", FileType.INNO: ".exe", FileType.NULLSOFT: ".exe", FileType.BURN: ".exe"}.get(
            self, f".{self.lower()}"
        )


class Scope(StrEnum):
    """Section 2.4."""

    MACHINE = "machine"
    USER = "user"


class Locale(StrEnum):
    """Section 2.4; the last three have an underscore, as specified."""

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
    """What an installation does with an older version that is there already."""

    INSTALL = "install"
    UNINSTALL_PREVIOUS = "uninstallPrevious"
    DENY = "deny"


@dataclass(frozen=True)
class Switches:
    """Install switches, as the installer takes them on its command line."""

    silent: str = ""
    silent_with_progress: str = ""
    interactive: str = ""
    install_location: str = ""
    log: str = ""
    upgrade: str = ""
    custom: str = ""
    repair: str = ""


@dataclass(frozen=True)
class PackageDependency:
    """Another package that must be there; an empty `min_version` is any version."""

    package_id: str
    min_version: str = ""


@dataclass(frozen=True)
class Dependencies:
    """What an installer needs on the machine."""

    windows_features: tuple[str, ...] = ()
    windows_libraries: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    packages: tuple[PackageDependency, ...] = ()


@dataclass(frozen=True)
class PackageVersion:
    """One installer of a package, under a version string. `size` and `sha256` are known once it has its file."""

    uid: str
    package_id: str
    version: str
    architecture: Architecture
    installer_type: FileType
    scope: Scope
    server_filename: str
    locale: Locale = Locale.EN_US
    channel: str = "stable"
    nested_type: FileType | None = None
    nested_paths: tuple[str, ...] = ()
    product_code: str = ""
    upgrade_code: str = ""
    package_family_name: str = ""
    switches: Switches = field(default_factory=Switches)
    upgrades: UpgradeBehavior = UpgradeBehavior.INSTALL
    dependencies: Dependencies = field(default_factory=Dependencies)
    size: int = 0
    sha256: str = ""

    @property
    def installer_key(self) -> str:
        """What tells this installer from the others of its package; no part of it can hold a line break."""
        parts = (
            self.version,
            self.architecture,
            self.installer_type,
            self.nested_type or "",
            self.scope,
            self.locale,
            self.channel,
        )
        return "\n".join(parts)


@dataclass(frozen=True)
class VersionName:
    """As much of a version as the catalog shows."""

    package_id: str
    version: str
    uid: str
