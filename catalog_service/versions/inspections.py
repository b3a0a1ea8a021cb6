"""Compares creation forms with the properties found in installer files."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from catalog_service.model.enumerations import Architecture, FileType
from catalog_service.model.versions import IDENTIFIERS_OF, PackageVersion
from catalog_service.outgoing.upload_service import UploadService
from common.auth.internal_tokens import Caller
from common.errors import InvalidField, Overloaded, Unavailable, UpstreamProblem
from common.http.forms import Form

REQUIRED = ("package_version", "file_architect", "file_type", "file_scope")
IDENTIFIERS = ("productcode", "upgradecode", "package_family_name", "signature_sha256")

_FIELD_OF = {
    "product_code": "productcode",
    "upgrade_code": "upgradecode",
    "package_family_name": "package_family_name",
}

# For these types the file itself has an architecture.
_DATABASES, _PACKAGES = {FileType.MSI, FileType.WIX}, {FileType.MSIX, FileType.APPX}
# The installer types that a form may declare, by the type found. Fonts are not recognized.
_ALLOWED_TYPES: Mapping[str, set[FileType]] = {
    "EXE": {FileType.EXE, FileType.INNO, FileType.NULLSOFT, FileType.BURN, FileType.PORTABLE},
    "INNO": {FileType.EXE, FileType.INNO},
    "NULLSOFT": {FileType.EXE, FileType.NULLSOFT},
    "BURN": {FileType.EXE, FileType.BURN},
    "MSI": _DATABASES,
    "WIX": _DATABASES,
    "MSIX": _PACKAGES,
    "APPX": _PACKAGES,
    "ZIP": {FileType.ZIP},
    "": {FileType.FONT},
}


class InstallerContradicts(InvalidField):
    """The form contradicts the installer, and the tenant refuses that."""

    code = "installer_contradicts"


@dataclass(frozen=True)
class Inspections:
    """Completes creation forms with the properties of their files."""

    installers: UploadService

    async def complete(self, caller: Caller, form: Form) -> Form:
        """Return the form with the missing required fields that its installer has.

        For a strict tenant, raises InstallerContradicts if the two contradict each other, and InvalidField for a wrong
        field, which cannot be compared. Raises Unavailable if the installer could not be inspected.
        """
        missing = [name for name in REQUIRED if not form.get(name)]
        server_filename = form.get("server_filename")
        if not server_filename or not (missing or caller.tenant.strict_installers):
            return form
        try:
            properties = await self.installers.inspect(caller, server_filename)
        except UpstreamProblem as problem:
            if problem.status >= 500:
                raise
            return form  # The claim of the file reports a wrong name.
        completed = {name: (str(properties[name]),) for name in missing if properties[name]}
        form = replace(form, fields={**form.fields, **completed})
        if caller.tenant.strict_installers:
            _check_consistent(form, properties)
        return form

    async def with_identifiers(self, caller: Caller, version: PackageVersion) -> PackageVersion:
        """Return a version with the identifiers of its file that it lacks, after the file's inspection.

        `file_fields` adds its signature. If the inspection fails, the version is created without them.
        """
        names = IDENTIFIERS_OF.get(version.installer_type, ())
        if version.installer_url or all(attrgetter(name)(version) for name in names):
            return version
        with suppress(UpstreamProblem, Overloaded, Unavailable):
            properties = await self.installers.inspect(caller, version.server_filename)
            missing = [name for name in names if name in _FIELD_OF and not getattr(version, name)]
            identifiers: dict[str, Any] = {name: str(properties[_FIELD_OF[name]]) for name in missing}
            return replace(version, **identifiers)
        return version


def _check_consistent(form: Form, properties: Mapping[str, Any]) -> None:
    if properties["state"] == "failed":
        message = f"cannot be read as an installer ({properties['reason']})"
        raise InstallerContradicts("file", message, reason="unreadable_installer", cause=properties["reason"])
    declared, detected = form.choice("file_type", FileType), str(properties["file_type"])
    if declared not in _ALLOWED_TYPES.get(detected, set()):
        if not detected:
            message = f"is {declared}, but the file is no known installer"
            raise InstallerContradicts("file_type", message, reason="unknown_file_type", value=declared)
        message = f"is {declared}, but the file is {detected}"
        raise InstallerContradicts("file_type", message, reason="other_file_type", value=declared, actual=detected)
    architecture, machine = form.choice("file_architect", Architecture), str(properties["file_architect"])
    if declared in _DATABASES | _PACKAGES and machine and machine != architecture:
        message = f"is {architecture}, but the file is for {machine}"
        raise InstallerContradicts(
            "file_architect", message, reason="other_architecture", value=architecture, actual=machine
        )
    for name in IDENTIFIERS:
        text, in_file = form.get(name) or "", str(properties.get(name, ""))
        if text and in_file and text.casefold() != in_file.casefold():
            message = f"is not the file's, which is {in_file}"
            raise InstallerContradicts(name, message, reason="not_the_files", actual=in_file)
