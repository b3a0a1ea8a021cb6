"""The installers in a manifest."""

from collections.abc import Mapping, Sequence
from typing import Any

from catalog_service.model.manifest.fields import to_document
from catalog_service.model.manifest.version import ReleaseTexts
from catalog_service.model.versions import Dependencies, PackageVersion
from catalog_service.winget.contracts import WITH_NESTED, Contract, with_winget_names, without_empty
from catalog_service.winget.installable import PACKAGED

# Fields that have another place or another name in the protocol.
ELSEWHERE = {*ReleaseTexts.model_fields, "locales", "installer_locale", "portable_command_alias", "signature_sha256"}


def installer(version: PackageVersion, contract: Contract, address: str) -> Mapping[str, Any]:
    """Return the members of an installer that the contract supports."""
    fields = {name: value for name, value in to_document(version.manifest).items() if name not in ELSEWHERE}
    entries = _entries(version, fields.pop("apps_and_features_entries", ()))
    markets = {name: fields.pop(name) for name in ("allowed_markets", "excluded_markets") if name in fields}
    metadata = {
        "default_install_location": fields.pop("default_install_location", ""),
        "files": fields.pop("installed_files", ()),
    }
    family_name = version.package_family_name
    if contract.minor < WITH_NESTED and version.effective_type not in PACKAGED:
        family_name = ""  # Older clients know no other types that install packaged apps.
    return contract.supported(
        without_empty(
            {
                **with_winget_names(fields),
                "Architecture": version.architecture.value,
                "InstallerType": version.installer_type.lower(),
                "InstallerUrl": address,
                "InstallerSha256": version.sha256.upper(),
                "SignatureSha256": signature_of(version).upper(),
                "InstallerLocale": version.language,
                "Scope": version.scope.value,
                "UpgradeBehavior": version.upgrades.value,
                "ProductCode": version.product_code,
                "PackageFamilyName": family_name,
                "InstallerSwitches": with_winget_names(without_empty(vars(version.switches))),
                "Dependencies": _dependencies(version.dependencies),
                "AppsAndFeaturesEntries": entries,
                "InstallationMetadata": with_winget_names(without_empty(metadata)),
                "Markets": with_winget_names(markets),
                **_nested(version),
            }
        )
    )


def signature_of(version: PackageVersion) -> str:
    """Return the SHA-256 of the signature of an MSIX or APPX; "" for other installers, or if it is unknown."""
    return version.manifest.signature_sha256 if version.installer_type in PACKAGED else ""


def _entries(version: PackageVersion, declared: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the entries of Apps and Features, with the version's upgrade code."""
    entries = [dict(entry) for entry in declared]
    for entry in entries:
        if "installer_type" in entry:
            entry["installer_type"] = entry["installer_type"].lower()
    if version.upgrade_code and version.effective_type not in PACKAGED:
        if not entries:
            entries.append({})
        entries[0].setdefault("upgrade_code", version.upgrade_code)
    return [with_winget_names(entry) for entry in entries]


def _nested(version: PackageVersion) -> Mapping[str, Any]:
    if version.effective_type in {None, version.installer_type}:
        return {}
    aliases = version.manifest.portable_command_alias or ("",) * len(version.nested_paths)
    files = zip(version.nested_paths, aliases, strict=True)
    return {
        "NestedInstallerType": version.effective_type.lower(),
        "NestedInstallerFiles": [
            without_empty({"RelativeFilePath": path, "PortableCommandAlias": alias}) for path, alias in files
        ],
    }


def _dependencies(dependencies: Dependencies) -> Mapping[str, Any]:
    packages = [
        without_empty({"PackageIdentifier": package.package_id, "MinimumVersion": package.min_version})
        for package in dependencies.packages
    ]
    return without_empty(
        {
            "WindowsFeatures": dependencies.windows_features,
            "WindowsLibraries": dependencies.windows_libraries,
            "PackageDependencies": packages,
            "ExternalDependencies": dependencies.external,
        }
    )
