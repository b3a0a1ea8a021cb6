"""Unfinished versions, and the fields that a version takes from its file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from catalog_service.model.enumerations import FileType
from catalog_service.model.installers import InstallerFile
from catalog_service.model.manifest.rules import Refusal
from catalog_service.model.versions import PackageVersion
from common.auth.package_patterns import EVERY_PACKAGE

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
class HiddenVersion:
    """A version whose deletion has begun."""

    tenant_id: str
    uid: str


@dataclass(frozen=True)
class VersionPage:
    """Versions with the reasons why winget refuses them, and the number of versions on all pages.

    `winget_refusal` is the reason why winget clients see no version of the package, if any.
    """

    rows: Sequence[tuple[PackageVersion, Sequence[Refusal]]]
    total: int
    winget_refusal: Refusal | None


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
