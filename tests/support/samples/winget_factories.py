"""Packages as winget's source reads them; a test states only what matters to it."""

from typing import Any
from uuid import uuid4

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import Architecture, FileType, Scope
from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.manifest.version import VersionManifest
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion


def make_version(package_id: str = "Acme.Editor", **fields: Any) -> PackageVersion:
    """A version with its file; fields that are none of its own are its manifest's."""
    own = {name: fields.pop(name) for name in list(fields) if name in PackageVersion.__dataclass_fields__}
    given: dict[str, Any] = {
        "uid": str(uuid4()),
        "version": "1.0",
        "architecture": Architecture.X64,
        "installer_type": FileType.MSI,
        "scope": Scope.MACHINE,
        "server_filename": f"{uuid4()}.msi",
        "size": 4096,
        "sha256": "ab" * 32,
        "manifest": VersionManifest(**fields),
    }
    return PackageVersion(package_id=package_id, **{**given, **own})


def make_entry(package_id: str = "Acme.Editor", *versions: PackageVersion, **fields: Any) -> WholeEntry:
    """A package with one version unless others are given; fields that are none of its own are its manifest's."""
    own = {name: fields.pop(name) for name in list(fields) if name in Package.__dataclass_fields__}
    given = {"package_uid": str(uuid4()), "name": "Editor", "publisher": "Acme", "description": "Edits text."}
    package = Package(package_id, manifest=PackageManifest(**fields), **{**given, **own})
    return WholeEntry(package, versions or [make_version(package_id)])
