"""What a manifest says for all its installers, given to each as winget's client gives it."""

from typing import Any, TypeVar

from deploy.winget_import.schema.installer_schema import Installer, InstallerFields
from deploy.winget_import.schema.schema import InstallersFile
from deploy.winget_import.schema.values import Fields

PACKAGED = frozenset(["msix", "appx"])
# These write an entry of Apps and Features.
WITH_ENTRY = frozenset(["exe", "msi", "inno", "nullsoft", "wix", "burn", "portable"])
# What an installer says of these is laid over what all say, member by member; all else takes the other's place.
BY_MEMBER = ("installer_switches", "installation_metadata")
OF_ARCHIVES = ("nested_installer_type", "nested_installer_files")
# An empty list of these is as if there were none.
NOT_EMPTY = frozenset(["apps_and_features_entries", "nested_installer_files"])

Part = TypeVar("Part", bound=Fields)


def effective_type(installer: InstallerFields) -> str:
    """The type of what is installed: of an archive that of what is in it. "" where it is not said."""
    return (installer.nested_installer_type if installer.installer_type == "zip" else installer.installer_type) or ""


def merged(root: InstallersFile, installer: Installer) -> Installer:
    found: dict[str, Any] = {}
    for name in InstallerFields.model_fields:
        own, common = getattr(installer, name), getattr(root, name)
        if own is None or (name in NOT_EMPTY and not own):
            found[name] = common
        elif name in BY_MEMBER and common is not None:
            found[name] = _over(common, own)
    if installer.dependencies is not None and not any(installer.dependencies.model_dump().values()):
        found["dependencies"] = root.dependencies
    whole = installer.model_copy(update=found)
    without = {name: getattr(installer, name) for name in OF_ARCHIVES} if whole.installer_type != "zip" else {}
    kind = effective_type(whole)
    if kind not in PACKAGED:
        without["package_family_name"] = installer.package_family_name
    if kind not in WITH_ENTRY:
        without["product_code"] = installer.product_code
        without["apps_and_features_entries"] = installer.apps_and_features_entries
    return whole.model_copy(update=without)


def _over(common: Part, own: Part) -> Part:
    return common.model_copy(update={name: value for name, value in own if value is not None})
