"""Builds the response bodies of packages and versions."""

import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from catalog_service.catalog.reader import CatalogEntry
from catalog_service.model.enumerations import Switch
from catalog_service.model.identities import SharedIdentity
from catalog_service.model.manifest_fields import Fields, to_document
from catalog_service.model.packages import Package, PackageSummary
from catalog_service.model.versions import PackageVersion
from catalog_service.model.winget_rules import Refusal
from catalog_service.packages.service import logo_tag
from catalog_service.settings import CatalogSettings
from common.auth.downloads import download_url
from common.auth.internal_tokens import Caller


def rendered_package(entry: CatalogEntry) -> bytes:
    """Return a Package object in JSON; `VERSIONS` and `VERSIONS_UID` have the same order, newest first."""
    package, versions = entry.package, entry.versions
    members = {
        "PACKAGE_ID": package.package_id,
        "PACKAGE_NAME": package.name,
        "PACKAGE_PUBLISHER": package.publisher,
        "PACKAGE_DESCRIPTION": package.description,
        "PACKAGE_LOGO": f"data:image/png;base64,{b64encode(package.logo).decode()}" if package.logo else "",
        "PACKAGE_ACTIVE": "1" if package.active else "0",
        "VERSIONS": [version.version for version in versions],
        "VERSIONS_UID": [version.uid for version in versions],
    }
    return orjson.dumps(members)


def expiry_time(lifetime: int) -> int:
    """Return the expiry of an address with this lifetime in seconds, as seconds since 1970.

    It stays the same for some seconds, so that responses with it can be cached.
    """
    now = int(time.time())
    return now - now % max(1, lifetime // 360) + lifetime


def package_version(
    version: PackageVersion, caller: Caller, settings: CatalogSettings, *, expires: int
) -> dict[str, Any]:
    """Return a Package_Version object with an installer address that is valid until `expires`."""
    return {
        "PACKAGE_ID": version.package_id,
        "VERSION": version.version,
        "LOCALE": version.locale,
        "ARCHITECTURE": version.architecture,
        "INSTALLER_TYPE": version.installer_type,
        "INSTALLER_URL": installer_url(version, caller, settings, expires=expires),
        "INSTALLER_SHA256": version.sha256,
        "INSTALLER_SCOPE": version.scope,
        "UID": version.uid,
        "INSTALLER_NESTED_TYPE": version.nested_type or "",
        "PRODUCTCODE": version.product_code,
        "UPGRADECODE": version.upgrade_code,
        "PACKAGE_FAMILY_NAME": version.package_family_name,
        "CHANNEL": version.channel,
        "NESTED_PACKAGE_INSTALLER_PATHS": [{"RelativeFilePath": path} for path in version.nested_paths],
    }


def packages_page(packages: Sequence[PackageSummary], total: int) -> dict[str, Any]:
    """Return a page of packages, and the number of packages on all pages."""
    rows = [
        {
            "package_id": package.package_id,
            "package_name": package.name,
            "package_publisher": package.publisher,
            "package_active": "1" if package.active else "0",
            "versions": package.versions,
            "newest_version": package.newest_version,
            "package_logo": package.logo,
            "winget_refusal": package.winget_refusal,
        }
        for package in packages
    ]
    return {"packages": rows, "total": total}


def package_details(package: Package) -> dict[str, Any]:
    """Return all fields of a package by their names in the form; of the logo only its tag."""
    return {
        "package_id": package.package_id,
        "package_name": package.name,
        "package_publisher": package.publisher,
        "package_description": package.description,
        "package_active": "1" if package.active else "0",
        "package_logo": logo_tag(package.logo),
        **_all_fields(package.manifest),
    }


def version_details(
    version: PackageVersion, refused: Sequence[Refusal], shared: Sequence[SharedIdentity]
) -> dict[str, Any]:
    """Return all fields of a version; `refused` has the reasons why winget clients refuse it.

    `shared` has its identities that other packages have, too.
    """
    dependencies = version.dependencies
    return {
        "uid": version.uid,
        "package_id": version.package_id,
        "package_version": version.version,
        "file_architect": version.architecture,
        "file_type": version.installer_type,
        "file_scope": version.scope,
        "package_locale": version.locale,
        "channel": version.channel,
        **{f"switch_{switch}": getattr(version.switches, switch.name.lower()) for switch in Switch},
        "productcode": version.product_code,
        "upgradecode": version.upgrade_code,
        "package_family_name": version.package_family_name,
        "file_type_nested": version.nested_type or "",
        "file_nested_path": version.nested_paths,
        "upgrades": version.upgrades,
        "dep_windows_features": dependencies.windows_features,
        "dep_windows_libraries": dependencies.windows_libraries,
        "dep_external": dependencies.external,
        "dep_pkg_identifier": [package.package_id for package in dependencies.packages],
        "dep_pkg_min_version": [package.min_version for package in dependencies.packages],
        **_all_fields(version.manifest),
        "installer_url": version.installer_url,
        "installer_sha256": version.sha256 if version.installer_url else "",
        "size": version.size,
        "published_at": version.published_at,
        "published_by": version.published_by,
        "winget_refusals": refused,
        "shared_identities": shared_identities(shared),
    }


def shared_identities(shared: Sequence[SharedIdentity]) -> list[dict[str, str]]:
    """Return the identities that other packages have, by the names of form fields."""
    return [{"field": identity.kind, "value": identity.value, "package_id": identity.package_id} for identity in shared]


def version_row(
    version: PackageVersion,
    refused: Sequence[Refusal],
    caller: Caller,
    settings: CatalogSettings,
    downloads: Mapping[str, int] | None,
    *,
    expires: int,
) -> dict[str, Any]:
    """Return a row of a package's versions; `downloads` are by uid, None if they are not known now."""
    return {
        "uid": version.uid,
        "package_version": version.version,
        "channel": version.channel,
        "file_architect": version.architecture,
        "file_type": version.installer_type,
        "file_type_nested": version.nested_type or "",
        "file_scope": version.scope,
        "package_locale": version.locale,
        "size": version.size,
        "sha256": version.sha256,
        "download_url": installer_url(version, caller, settings, expires=expires),
        "published_at": version.published_at,
        "published_by": version.published_by,
        "downloads": downloads[version.uid] if downloads else None,
        "winget_refusals": refused,
    }


def _all_fields(manifest: Fields) -> Mapping[str, Any]:
    """Every field of a manifest; an empty one is "", [] or false."""
    values = {**type(manifest)().model_dump(mode="json"), **to_document(manifest)}
    return {name: "" if value is None else value for name, value in values.items()}


def installer_url(version: PackageVersion, caller: Caller, settings: CatalogSettings, *, expires: int) -> str:
    """Return the external address of an installer, or an address here that is valid until `expires`."""
    return version.installer_url or download_url(
        caller,
        settings.download_key,
        direct=settings.download_url,
        server_filename=version.server_filename,
        file_name=f"{version.package_id}-{version.version}{version.suffix}",
        expires=expires,
    )


def external_installer(version: PackageVersion) -> dict[str, str]:
    """Return the host and the digest of an external installer. The rest of its address may have a secret."""
    if not version.installer_url:
        return {}
    return {"installer_host": urlsplit(version.installer_url).netloc, "sha256": version.sha256}
