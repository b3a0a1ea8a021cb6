"""Converts versions to documents of the database and back."""

from dataclasses import asdict
from typing import Any

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from catalog_service.model.manifest.fields import from_document, to_document
from catalog_service.model.manifest.version import VersionManifest
from catalog_service.model.versions import Dependencies, PackageDependency, PackageVersion, Switches

_EMPTY_MANIFEST = VersionManifest()  # shared by all versions without one


def document_of(version: PackageVersion) -> dict[str, Any]:
    """Return all fields by their names; enumerations are texts, sequences are lists."""
    dependencies = version.dependencies
    return {
        **vars(version),
        "architecture": version.architecture.value,
        "installer_type": version.installer_type.value,
        "scope": version.scope.value,
        "locale": version.locale.value,
        "nested_type": version.nested_type and version.nested_type.value,
        "nested_paths": list(version.nested_paths),
        "switches": asdict(version.switches),
        "upgrades": version.upgrades.value,
        "dependencies": {
            "windows_features": list(dependencies.windows_features),
            "windows_libraries": list(dependencies.windows_libraries),
            "external": list(dependencies.external),
            "packages": [asdict(package) for package in dependencies.packages],
        },
        "manifest": to_document(version.manifest),
    }


def version_of(document: dict[str, Any]) -> PackageVersion:
    """Return the version of a document of `document_of`, without its further fields."""
    needed, manifest = document["dependencies"], document.get("manifest")
    return PackageVersion(
        uid=document["uid"],
        package_id=document["package_id"],
        version=document["version"],
        architecture=Architecture(document["architecture"]),
        installer_type=FileType(document["installer_type"]),
        scope=Scope(document["scope"]),
        server_filename=document["server_filename"],
        locale=Locale(document["locale"]),
        channel=document["channel"],
        nested_type=FileType(document["nested_type"]) if document["nested_type"] else None,
        nested_paths=tuple(document["nested_paths"]),
        product_code=document["product_code"],
        upgrade_code=document["upgrade_code"],
        package_family_name=document["package_family_name"],
        switches=Switches(**document["switches"]),
        upgrades=UpgradeBehavior(document["upgrades"]),
        dependencies=Dependencies(
            windows_features=tuple(needed["windows_features"]),
            windows_libraries=tuple(needed["windows_libraries"]),
            external=tuple(needed["external"]),
            packages=tuple(PackageDependency(**package) for package in needed["packages"]),
        ),
        manifest=from_document(VersionManifest, manifest) if manifest else _EMPTY_MANIFEST,
        installer_url=document.get("installer_url", ""),
        size=document["size"],
        sha256=document["sha256"],
    )
