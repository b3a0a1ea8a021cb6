"""Packages, their versions, finished uploads, and what can go wrong with packages and versions."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from common.errors import Conflict, NotFound, Problem


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
class Package:
    """A package of a tenant. `logo` is a PNG image, or empty.

    `package_uid` tells a package from an earlier one, deleted since, that had the same `package_id`.
    """

    package_id: str
    package_uid: str
    name: str
    publisher: str
    description: str = ""
    logo: bytes = b""
    active: bool = True


@dataclass(frozen=True)
class PackageChanges:
    """What to change about a package; None keeps what is there."""

    name: str | None = None
    publisher: str | None = None
    description: str | None = None
    logo: bytes | None = None
    active: bool | None = None


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
class InstallerFile:
    """A file that upload_service keeps: bytes, and the hexadecimal SHA-256 digest."""

    size: int
    sha256: str


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


@dataclass(frozen=True)
class FinishedUpload:
    """An installer file that is whole and, as far as is known, belongs to no version yet."""

    server_filename: str
    file_id: str
    size: int
    sha256: str
    finished_at: datetime


class PackageExists(Problem):
    """The package id is taken (section 4.3)."""

    status = 401  # The interface answers a duplicate package ID with 401.
    code = "package_exists"

    def __init__(self, package_id: str) -> None:
        super().__init__(f"There is a package {package_id!r} already.")


class PackageNotFound(NotFound):
    code = "package_not_found"

    def __init__(self, package_id: str) -> None:
        super().__init__(f"There is no package {package_id!r}.")


class VersionExists(Conflict):
    """The version, or this installer of it, is there already (sections 4.5 and 9)."""

    code = "version_exists"

    def __init__(self, version: str) -> None:
        super().__init__(f"The package has version {version!r} already.")


class VersionNotFound(NotFound):
    code = "version_not_found"

    def __init__(self, uid: str) -> None:
        super().__init__(f"There is no version with the UID {uid!r}.")
