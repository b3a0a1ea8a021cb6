"""A version of a package, its document in the database, and the order of versions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import total_ordering
from hashlib import sha256
from itertools import zip_longest
from operator import attrgetter
from pathlib import PurePath
from typing import Any, TypeVar

from pydantic import TypeAdapter

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from catalog_service.model.identities import IdentityKind, identities_of
from catalog_service.model.installers import InstallerFile
from catalog_service.model.manifest import VersionManifest
from catalog_service.model.manifest_fields import to_document
from catalog_service.model.releases import Stage, stage_of
from common.auth.roles import EVERY_PACKAGE

_SPELT = {locale.replace("_", "-"): locale.value for locale in Locale}
_EMPTY_MANIFEST = VersionManifest()  # shared by all versions without one


@dataclass(frozen=True)
class Switches:
    """The arguments of the installer's command line."""

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
    """A required package; an empty `min_version` is any version."""

    package_id: str
    min_version: str = ""


@dataclass(frozen=True)
class Dependencies:
    """The requirements of an installer."""

    windows_features: tuple[str, ...] = ()
    windows_libraries: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    packages: tuple[PackageDependency, ...] = ()


@dataclass(frozen=True)
class PackageVersion:
    """One installer of a package, under a version string. `size` and `sha256` are set with its file.

    `published_by` is the name of a user or an API token. The store sets `published_at` and `stage`.
    The file is `server_filename`, or an external one at `installer_url` with a declared `sha256` and `size` 0.
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
    published_by: str = ""
    published_at: datetime | None = field(default=None, compare=False)
    stage: Stage | None = field(default=None, compare=False)

    @property
    def installer_key(self) -> str:
        """A key that is unique in the package; no part of it has a line break."""
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
        """The file's ending on Windows; a font keeps the ending of its upload."""
        uploaded = PurePath(self.server_filename).suffix
        return uploaded if uploaded and self.installer_type is FileType.FONT else self.installer_type.suffix

    @property
    def effective_type(self) -> FileType | None:
        """The type of the installed program: for an archive the type of its content, if it is known."""
        return self.nested_type if self.installer_type is FileType.ZIP else self.installer_type

    @property
    def language(self) -> str:
        """The language tag of the installer: from its manifest, else the version's locale."""
        return self.manifest.installer_locale or self.locale.replace("_", "-")

    @property
    def identities(self) -> list[str]:
        """The identities of the programs that it installs."""
        entries = self.manifest.apps_and_features_entries
        return identities_of(
            {
                IdentityKind.PRODUCT_CODE: [self.product_code, *(entry.product_code for entry in entries)],
                IdentityKind.UPGRADE_CODE: [self.upgrade_code, *(entry.upgrade_code for entry in entries)],
                IdentityKind.FAMILY_NAME: [self.package_family_name],
                IdentityKind.NAME: [entry.display_name for entry in entries],
            }
        )

    @property
    def client_key(self) -> tuple[object, ...]:
        """The properties by which winget clients distinguish installers."""
        types = (self.installer_type.client_type, self.effective_type and self.effective_type.client_type)
        return self.version, *types, self.architecture, self.language, self.scope


@dataclass(frozen=True)
class VersionName:
    """The part of a version that the catalog shows."""

    package_id: str
    version: str
    uid: str
    stage: Stage | None = None


_ADAPTER = TypeAdapter(PackageVersion)


def document_of(version: PackageVersion) -> dict[str, Any]:
    """Return all fields but `published_at` and `stage` by their names, and the identities.

    Enumerations are texts, sequences are lists.
    """
    fields = _ADAPTER.dump_python(version, mode="json", exclude={"published_at", "stage"})
    return {**fields, "manifest": to_document(version.manifest), "identities": version.identities}


def revision_of(version: PackageVersion) -> str:
    """A digest of a version's record, with all that an edit can change."""
    return sha256(_ADAPTER.dump_json(version, exclude={"published_at", "stage"})).hexdigest()[:32]


def version_of(document: dict[str, Any]) -> PackageVersion:
    """Return the version of a document of `document_of`, without its further fields."""
    added = {"manifest": document.get("manifest") or _EMPTY_MANIFEST, "published_at": document.get("changed_at")}
    return _ADAPTER.validate_python({**document, **added})


def name_of(document: dict[str, Any]) -> VersionName:
    """Return the name of a document with these fields only; it may lack `stage`."""
    return VersionName(**{**document, "stage": stage_of(document.get("stage"))})


def rule_version_of(document: dict[str, Any]) -> PackageVersion:
    """Return a version with the fields only for winget's rules that a creation form may break."""
    return version_of({**document, "architecture": Architecture.X64, "scope": Scope.MACHINE, "server_filename": ""})


_PREAMBLE = re.compile(r"[^0-9]*(?=[0-9])")
_PART = re.compile(r"([0-9]*)(.*)", re.DOTALL)

# A number, whether it stands alone (1.0 is newer than 1.0-beta), and what follows it.
_Part = tuple[int, bool, str]
_ZERO: _Part = (0, True, "")


AnyVersion = TypeVar("AnyVersion", bound=VersionName | PackageVersion)


@total_ordering
class VersionOrder:
    """A version string that compares with others: the newer one is greater.

    Missing parts count as 0, so `1.2` and `1.2.0` are equal. Text before the first digit does not count, as in `v1.2`.
    """

    __slots__ = ("_parts",)

    def __init__(self, version: str) -> None:
        self._parts = [_part(text) for text in _PREAMBLE.sub("", version, count=1).split(".")]
        while self._parts[-1:] == [_ZERO]:
            self._parts.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionOrder) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(tuple(self._parts))

    def __lt__(self, other: "VersionOrder") -> bool:
        for mine, others in zip_longest(self._parts, other._parts, fillvalue=_ZERO):
            if mine != others:
                return mine < others
        return False


def newest_first(versions: Iterable[AnyVersion]) -> list[AnyVersion]:
    """Return the newest first, independent of the input's order."""
    return sorted(versions, key=lambda each: (VersionOrder(each.version), each.version, each.uid), reverse=True)


def _part(text: str) -> _Part:
    match = _PART.fullmatch(text.strip())
    assert match is not None  # noqa: S101  the pattern takes every text
    digits, rest = match.groups()
    return int(digits or 0), not rest, rest.casefold()


TEXTS = ("release_notes", "release_notes_url", "release_date", "locales")  # in manifests, for people only
SIGNATURE = "manifest.signature_sha256"
# The identifiers in a file of a type, by the names of the version's fields. Windows ignores those of other types.
IDENTIFIERS_OF = {
    FileType.MSI: ("product_code", "upgrade_code"),
    FileType.WIX: ("product_code", "upgrade_code"),
    FileType.BURN: ("product_code",),
    FileType.MSIX: ("package_family_name", SIGNATURE),
    FileType.APPX: ("package_family_name", SIGNATURE),
}
CODES_OF = {kind: tuple(name for name in names if name != SIGNATURE) for kind, names in IDENTIFIERS_OF.items()}


@dataclass(frozen=True)
class PendingVersion:
    """A version whose file is not claimed yet, its package, and the person who publishes it.

    `packages` are the patterns of the package ids that the publishing token may change.
    """

    tenant_id: str
    package_uid: str
    version: PackageVersion
    publisher: str = ""
    packages: tuple[str, ...] = EVERY_PACKAGE


@dataclass(frozen=True)
class VersionEdit:
    """A version before and after a change of its record, with the old and new texts of its form's fields."""

    before: PackageVersion
    after: PackageVersion
    texts: Mapping[str, tuple[str, str]]

    @property
    def is_of_texts(self) -> bool:
        """Whether machines do the same as before: only texts for people changed."""
        texts = {name: getattr(self.before.manifest, name) for name in TEXTS}
        return replace(self.after, manifest=self.after.manifest.model_copy(update=texts)) == self.before

    @property
    def changes(self) -> dict[str, Any]:
        """The changed fields of the version's document, with the key of its installer."""
        before, after = document_of(self.before), document_of(self.after)
        return {name: value for name, value in after.items() if value != before[name]}


@dataclass(frozen=True)
class HiddenVersion:
    """A version whose deletion has begun."""

    tenant_id: str
    uid: str


def file_fields(version: PackageVersion, file: InstallerFile) -> dict[str, Any]:
    """Return the fields that a version takes from its file: size, digest, and each identifier that it lacks.

    The identities are those with these identifiers. A field of the manifest is named `manifest.<name>`.
    """
    identifiers = {
        name: getattr(file, name.rpartition(".")[2]) for name in IDENTIFIERS_OF.get(version.installer_type, ())
    }
    missing = {name: text for name, text in identifiers.items() if text and not attrgetter(name)(version)}
    identities = replace(version, **{name: text for name, text in missing.items() if name != SIGNATURE}).identities
    return {"size": file.size, "sha256": file.sha256, **missing, "identities": identities}
