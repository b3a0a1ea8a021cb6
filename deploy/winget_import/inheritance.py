"""The fields that installers inherit from their manifest, by the rules of winget's client."""

from collections.abc import Set

from catalog_service.model.manifest.fields import Fields
from deploy.winget_import.schema.files import InstallersFile
from deploy.winget_import.schema.installers import Installer, InstallerFields

PACKAGED = frozenset(["msix", "appx"])
# Installers of these types write an entry of Apps and Features.
WITH_ENTRY = frozenset(["exe", "msi", "inno", "nullsoft", "wix", "burn", "portable"])
# An installer's members of these objects replace the manifest's; all other fields are replaced as a whole.
BY_MEMBER = frozenset(["installer_switches", "installation_metadata"])
# An empty list, or an object with empty members only, is the same as none.
INHERITED_IF_EMPTY = frozenset(["apps_and_features_entries", "nested_installer_files", "dependencies"])


def effective_type(installer: InstallerFields) -> str:
    """Return the type of the program that is installed, for an archive that of its content; "" if it is missing."""
    return (installer.nested_installer_type if installer.installer_type == "zip" else installer.installer_type) or ""


def with_inherited_fields(manifest: InstallersFile, installer: Installer) -> Installer:
    inherited = {}
    for name in manifest.model_fields_set & InstallerFields.model_fields.keys():
        own, common = getattr(installer, name), getattr(manifest, name)
        if name not in installer.model_fields_set or (name in INHERITED_IF_EMPTY and _is_empty(own)):
            inherited[name] = common
        elif name in BY_MEMBER:
            inherited[name] = common.model_copy(update={part: getattr(own, part) for part in own.model_fields_set})
    left_out = _not_inherited(installer.model_copy(update=inherited))
    return installer.model_copy(update={name: value for name, value in inherited.items() if name not in left_out})


def _not_inherited(whole: Installer) -> Set[str]:
    names = set()
    if whole.installer_type != "zip":
        names |= {"nested_installer_type", "nested_installer_files"}
    kind = effective_type(whole)
    if kind not in PACKAGED:
        names.add("package_family_name")
    if kind not in WITH_ENTRY:
        names |= {"product_code", "apps_and_features_entries"}
    return names


def _is_empty(value: object) -> bool:
    return not any(vars(value).values()) if isinstance(value, Fields) else not value
