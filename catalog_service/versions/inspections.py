"""What an installer says of itself, against what the form says that makes a version of it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol

from catalog_service.model.enumerations import Architecture, FileType
from catalog_service.model.packages import InstallerFile
from catalog_service.model.versions import PackageVersion
from common.auth.callers import Caller
from common.errors import InvalidField, Overloaded, Unavailable, UpstreamProblem
from common.http.forms import Form

REQUIRED = ("package_version", "file_architect", "file_type", "file_scope")
IDENTIFIERS = ("productcode", "upgradecode", "package_family_name", "signature_sha256")

# What a file may be said to be, by what it is. A program whose maker is not known may be any; fonts are not known.
_PROGRAMS = {
    "EXE": {FileType.EXE, FileType.INNO, FileType.NULLSOFT, FileType.BURN, FileType.PORTABLE},
    "INNO": {FileType.EXE, FileType.INNO},
    "NULLSOFT": {FileType.EXE, FileType.NULLSOFT},
    "BURN": {FileType.EXE, FileType.BURN},
}
# Here the file itself, not a program within it, is for one architecture.
_DATABASES, _PACKAGES = {FileType.MSI, FileType.WIX}, {FileType.MSIX, FileType.APPX}
_MAY_BE: Mapping[str, set[FileType]] = {
    **_PROGRAMS,
    "MSI": _DATABASES,
    "WIX": _DATABASES,
    "MSIX": _PACKAGES,
    "APPX": _PACKAGES,
    "ZIP": {FileType.ZIP},
    "": {FileType.FONT},
}

SIGNATURE = "manifest.signature_sha256"
# The identifiers that a file of a type has, by the names of the version's fields. Windows does not use those of another
# type.
_SAID_BY = {
    FileType.MSI: ("product_code", "upgrade_code"),
    FileType.WIX: ("product_code", "upgrade_code"),
    FileType.BURN: ("product_code",),
    FileType.MSIX: ("package_family_name", SIGNATURE),
    FileType.APPX: ("package_family_name", SIGNATURE),
}


class InstallerContradicts(InvalidField):
    """The installer says something else of itself than the form does, and the tenant wants that refused."""

    code = "installer_contradicts"


class Installers(Protocol):
    """The files, which upload_service keeps."""

    async def inspected(self, caller: Caller, server_filename: str) -> Mapping[str, Any]:
        """What one says of itself. Raises Answered where there is none of this name, and Unavailable."""


class Inspections:
    """Completes creation forms, and has files inspected before versions are made of them."""

    def __init__(self, installers: Installers) -> None:
        self._installers = installers

    async def completed(self, caller: Caller, form: Form) -> Form:
        """The form with those required fields that it left out and its installer says.

        Raises:
            InstallerContradicts: the tenant is strict, and the two contradict each other.
            InvalidField: the tenant is strict, and a field cannot be compared because it is wrong.
            Unavailable: the installer had to be inspected, and could not be.
        """
        left_out = [name for name in REQUIRED if not form.get(name)]
        server_filename = form.get("server_filename")
        if not server_filename or not (left_out or caller.tenant.strict_installers):
            return form
        try:
            found = await self._installers.inspected(caller, server_filename)
        except UpstreamProblem as problem:
            if problem.status >= 500:
                raise
            return form  # What is wrong with the name is said by who claims the file.
        said = {name: (str(found[name]),) for name in left_out if found[name]}
        form = replace(form, fields={**form.fields, **said})
        if caller.tenant.strict_installers:
            _compare(form, found)
        return form

    async def wait_for_identifiers(self, caller: Caller, version: PackageVersion) -> None:
        """Wait until a version's file is inspected, if it may have an identifier that the version does not say.

        The file brings it then, see `file_fields`. Where it cannot be inspected now, the version is made without.
        """
        if version.installer_url or all(attrgetter(name)(version) for name in _SAID_BY.get(version.installer_type, ())):
            return
        with suppress(UpstreamProblem, Overloaded, Unavailable):
            await self._installers.inspected(caller, version.server_filename)


def file_fields(version: PackageVersion, file: InstallerFile) -> dict[str, Any]:
    """The fields that a version gets from its file: size and digest, and each identifier that the version lacks.

    The names are those of the version's fields; a field of its manifest is `manifest.<name>`.
    """
    said = {name: getattr(file, name.rpartition(".")[2]) for name in _SAID_BY.get(version.installer_type, ())}
    left_out = {name: text for name, text in said.items() if text and not attrgetter(name)(version)}
    return {"size": file.size, "sha256": file.sha256, **left_out}


def _compare(form: Form, found: Mapping[str, Any]) -> None:
    if found["state"] == "failed":
        message = f"cannot be read as an installer ({found['reason']})"
        raise InstallerContradicts("file", message, reason="unreadable_installer", cause=found["reason"])
    given, format_found = form.choice("file_type", FileType), str(found["file_type"])
    if given not in _MAY_BE.get(format_found, set()):
        if not format_found:
            message = f"is {given}, but the file is no known installer"
            raise InstallerContradicts("file_type", message, reason="unknown_file_type", value=given)
        message = f"is {given}, but the file is {format_found}"
        raise InstallerContradicts("file_type", message, reason="other_file_type", value=given, actual=format_found)
    architecture, machine = form.choice("file_architect", Architecture), str(found["file_architect"])
    if given in _DATABASES | _PACKAGES and machine and machine != architecture:
        message = f"is {architecture}, but the file is for {machine}"
        raise InstallerContradicts(
            "file_architect", message, reason="other_architecture", value=architecture, actual=machine
        )
    for name in IDENTIFIERS:
        text, said = form.get(name) or "", str(found.get(name, ""))
        if text and said and text.casefold() != said.casefold():
            raise InstallerContradicts(name, f"is not the file's, which is {said}", reason="not_the_files", actual=said)
