"""Factories of packages for the winget source. A test states only the values that matter to it."""

from typing import Any
from uuid import uuid4

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.enumerations import Architecture, FileType, Scope
from catalog_service.model.manifest import PackageManifest, VersionManifest
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion


def make_version(package_id: str = "Acme.Editor", **fields: Any) -> PackageVersion:
    """A version with a file. Other fields belong to its manifest."""
    own = {name: fields.pop(name) for name in list(fields) if name in PackageVersion.__dataclass_fields__}
    defaults: dict[str, Any] = {
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
    return PackageVersion(package_id=package_id, **{**defaults, **own})


def make_entry(package_id: str = "Acme.Editor", *versions: PackageVersion, **fields: Any) -> WholeEntry:
    """A package with these versions, by default one. Other fields belong to its manifest."""
    own = {name: fields.pop(name) for name in list(fields) if name in Package.__dataclass_fields__}
    defaults = {"package_uid": str(uuid4()), "name": "Editor", "publisher": "Acme", "description": "Edits text."}
    package = Package(package_id, manifest=PackageManifest(**fields), **{**defaults, **own})
    return WholeEntry(package, versions or [make_version(package_id)])
