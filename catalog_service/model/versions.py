"""A version of a package (section 2.2)."""

from dataclasses import dataclass, field
from pathlib import PurePath

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from catalog_service.model.manifest.version import VersionManifest

_SPELT = {locale.replace("_", "-"): locale.value for locale in Locale}


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
    """One installer of a package, under a version string. `size` and `sha256` are known once it has its file.

    That is `server_filename`; or else it stays at `installer_url`, `sha256` is as its publisher says, and `size` 0.
    """

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
    manifest: VersionManifest = field(default_factory=VersionManifest)
    installer_url: str = ""
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
            _SPELT.get(self.language, self.language) if self.manifest.installer_locale else self.locale,
            self.channel,
        )
        return "\n".join(parts)

    @property
    def suffix(self) -> str:
        """How its file ends on Windows; fonts have several kinds, and that of the upload is it."""
        uploaded = PurePath(self.server_filename).suffix
        return uploaded if uploaded and self.installer_type is FileType.FONT else self.installer_type.suffix

    @property
    def effective_type(self) -> FileType | None:
        """The type of what is installed: of an archive that of what is in it, None where that is not said."""
        return self.nested_type if self.installer_type is FileType.ZIP else self.installer_type

    @property
    def language(self) -> str:
        """The language tag of the installer: what its manifest says, else the version's locale."""
        return self.manifest.installer_locale or self.locale.replace("_", "-")

    @property
    def client_key(self) -> tuple[object, ...]:
        """What winget clients tell the installers of one version apart by."""
        types = (self.installer_type.client_type, self.effective_type and self.effective_type.client_type)
        return self.version, *types, self.architecture, self.language, self.scope


@dataclass(frozen=True)
class VersionName:
    """As much of a version as the catalog shows."""

    package_id: str
    version: str
    uid: str
