"""The ids in requests, and the creation form of a version, also compared with the properties of its installer."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any
from uuid import uuid4

from aiohttp import web

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, Switch, UpgradeBehavior
from catalog_service.model.identities import IdentityKind
from catalog_service.model.installers import parse_address
from catalog_service.model.manifest import VersionManifest
from catalog_service.model.manifest_fields import SHA256, Source, parse_manifest
from catalog_service.model.packages import PackageNotFound, VersionNotFound
from catalog_service.model.versions import (
    CODES_OF,
    IDENTIFIERS_OF,
    Dependencies,
    PackageDependency,
    PackageVersion,
    Switches,
    rule_version_of,
)
from catalog_service.model.winget_rules import Refusal, contradictions
from catalog_service.outgoing.upload_service import UploadService
from common.auth.internal_tokens import Caller
from common.errors import InvalidField, InvalidRequest, Overloaded, Unavailable, UpstreamProblem
from common.http.forms import Form, clean
from common.telemetry import is_hidden

ID_LIMIT = 128  # characters, of these all
VERSION_LIMIT = 128
CHANNEL_LIMIT = 128
SWITCH_LIMIT = 2048
PATH_LIMIT = 512
NAME_LIMIT = 256
PAGE, PAGE_LIMIT = 50, 100  # packages, versions or releases

# The names in forms of the fields of a version that have another name there.
FORM_NAMES = {
    "version": "package_version",
    "architecture": "file_architect",
    "installer_type": "file_type",
    "scope": "file_scope",
    "locale": "package_locale",
    "nested_type": "file_type_nested",
    "nested_paths": "file_nested_path",
    "product_code": "productcode",
    "upgrade_code": "upgradecode",
}

# A form with a contradiction in one of these fields is refused. Other contradictions come from the specification's own
# fields: the version is created, and winget clients are not offered it.
REFUSED_FIELDS = frozenset([*VersionManifest.model_fields, "dep_windows_features"])

REQUIRED = ("package_version", "file_architect", "file_type", "file_scope")
IDENTIFIERS = ("productcode", "upgradecode", "package_family_name", "signature_sha256")
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

_GUID = re.compile(r"\{[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}")
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:")
_NOT_IN_IDS = frozenset('/\\:*?"<>|,')  # Commas separate ids, for example in blacklist entries.
# Invisible characters that are not of the category Cf, also of Unicode's reserves for more of them.
_RANGES = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000))
_INVISIBLE = frozenset(map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0, *_RANGES]))
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class InstallerContradicts(InvalidField):
    """The form contradicts the installer, and the tenant refuses that."""

    code = "installer_contradicts"


def package_id(text: str) -> str:
    """Return a valid package id. Raises InvalidField."""
    name = clean("package_id", text, limit=ID_LIMIT)
    if name in {"", ".", ".."} or name != name.strip() or _NOT_IN_IDS.intersection(name):
        message = 'must not be . or .., hold / \\ : * ? " < > | , or begin or end with a space'
        raise InvalidField("package_id", message, reason="not_a_package_id")
    for character in name:
        if is_hidden(character) or character in _INVISIBLE:
            code = f"{ord(character):04X}"
            message = f"holds the character U+{code}, which is invisible"
            raise InvalidField("package_id", message, reason="bad_character", character=code)
    return name


def package_in_path(request: web.Request) -> str:
    """Return the package id of a path. Raises PackageNotFound if no package can have it."""
    text = request.match_info["package_id"]
    try:
        return package_id(text)
    except InvalidField:
        raise PackageNotFound(package_id=text) from None


def uid_in_path(request: web.Request) -> str:
    """Return the version uid of a path. Raises VersionNotFound if it is not a UUID."""
    return _uid(request.match_info["version_uid"])


def version_uids(form: Form) -> tuple[str, ...]:
    """Return the versions that `delete_package_version` deletes, each once.

    Raises InvalidField for an empty list, and VersionNotFound for an item that is not a UUID.
    """
    uids = form.texts("versions_uids", limit=ID_LIMIT)
    if not uids:
        raise InvalidField("versions_uids", "is required", reason="required")
    return tuple(dict.fromkeys(_uid(text) for text in uids))


def _uid(text: str) -> str:
    if not _UUID.fullmatch(text.lower()):
        raise VersionNotFound(uid=text)
    return text.lower()


def new_version(form: Form, package_id: str) -> PackageVersion:
    """Return the version that `add_package_version` creates. Raises InvalidField."""
    return accepted(parse_version(form, package_id))


def accepted(version: PackageVersion) -> PackageVersion:
    """Return the version. Raises InvalidField for a contradiction in a field of `REFUSED_FIELDS`."""
    for contradiction in contradictions(version):
        if contradiction.field in REFUSED_FIELDS:
            raise InvalidField(contradiction.field, contradiction.reason, reason=contradiction.code)
    return version


def parse_version(form: Form, package_id: str) -> PackageVersion:
    """Return the version of a form, also one that winget clients refuse. Raises InvalidField."""
    server_filename, installer_url = _installer(form)
    installer_type = form.choice("file_type", FileType)
    switches = {
        switch.name.lower(): form.text(f"switch_{switch}", limit=SWITCH_LIMIT, required=False) for switch in Switch
    }
    return PackageVersion(
        uid=str(uuid4()),
        package_id=package_id,
        version=_trimmed(form, "package_version", VERSION_LIMIT),
        architecture=form.choice("file_architect", Architecture),
        installer_type=installer_type,
        scope=form.choice("file_scope", Scope),
        server_filename=server_filename,
        locale=form.choice("package_locale", Locale, Locale.EN_US),
        channel=_trimmed(form, "channel", CHANNEL_LIMIT, required=False) or "stable",
        nested_type=_nested_type(form),
        nested_paths=_nested_paths(form) if installer_type is FileType.ZIP else (),
        product_code=_guid(form, "productcode"),
        upgrade_code=_guid(form, "upgradecode"),
        package_family_name=form.text("package_family_name", limit=NAME_LIMIT, required=False),
        switches=Switches(**switches),
        upgrades=form.choice("upgrades", UpgradeBehavior, UpgradeBehavior.INSTALL),
        dependencies=Dependencies(
            windows_features=form.texts("dep_windows_features", limit=NAME_LIMIT),
            windows_libraries=form.texts("dep_windows_libraries", limit=NAME_LIMIT),
            external=form.texts("dep_external", limit=NAME_LIMIT),
            packages=_package_dependencies(form),
        ),
        manifest=parse_manifest(VersionManifest, form),
        installer_url=installer_url,
        sha256=_sha256(form) if installer_url else "",
    )


async def completed_form(installers: UploadService, caller: Caller, form: Form) -> Form:
    """Return the form with the missing required fields that its installer has.

    For a strict tenant, raises InstallerContradicts if the two contradict each other, and InvalidField for a wrong
    field, which cannot be compared. Raises Unavailable if the installer could not be inspected.
    """
    missing = [name for name in REQUIRED if not form.get(name)]
    server_filename = form.get("server_filename")
    if not server_filename or not (missing or caller.tenant.strict_installers):
        return form
    try:
        properties = await installers.inspect(caller, server_filename)
    except UpstreamProblem as problem:
        if problem.status >= 500:
            raise
        return form  # The claim of the file reports a wrong name.
    completed = {name: (str(properties[name]),) for name in missing if properties[name]}
    form = replace(form, fields={**form.fields, **completed})
    if caller.tenant.strict_installers:
        _check_consistent(form, properties)
    return form


async def with_identifiers(installers: UploadService, caller: Caller, version: PackageVersion) -> PackageVersion:
    """Return a version with the identifiers of its file that it lacks, after the file's inspection.

    `file_fields` adds its signature. If the inspection fails, the version is created without them.
    """
    names = IDENTIFIERS_OF.get(version.installer_type, ())
    if version.installer_url or all(attrgetter(name)(version) for name in names):
        return version
    with suppress(UpstreamProblem, Overloaded, Unavailable):
        properties = await installers.inspect(caller, version.server_filename)
        missing = [name for name in CODES_OF[version.installer_type] if not getattr(version, name)]
        identifiers: dict[str, Any] = {name: str(properties[FORM_NAMES.get(name, name)]) for name in missing}
        return replace(version, **identifiers)
    return version


def form_refusals(query: Form) -> Sequence[Refusal]:
    """Return the reasons why winget clients would refuse these fields of a creation form. Raises InvalidField.

    Other fields, and those that are empty although required, are not checked.
    """
    installer_type = query.choice("file_type", FileType, FileType.EXE)
    fields = {
        "uid": "",
        "package_id": query.text("package_id", limit=VERSION_LIMIT, required=False).strip(),
        "version": query.text("package_version", limit=VERSION_LIMIT, required=False).strip(),
        "installer_type": installer_type,
        "nested_type": _nested_type(query),
        "nested_paths": _nested_paths(query) if installer_type is FileType.ZIP else (),
        "product_code": query.text("productcode", limit=NAME_LIMIT, required=False),
    }
    missing = {name for name in ("package_id", "package_version") if not (query.get(name) or "").strip()}
    checked = query.fields.keys() - missing
    return [refusal for refusal in contradictions(rule_version_of(fields)) if refusal.field in checked]


def form_identities(query: Form) -> Mapping[IdentityKind, Sequence[str]]:
    """Return the identities in these fields of a creation form of a package or version. Raises InvalidField."""
    return {kind: [query.text(kind, limit=NAME_LIMIT, required=False)] for kind in IdentityKind}


def _installer(form: Form) -> tuple[str, str]:
    """Return the name of the stored file, or else the external address. Raises InvalidRequest."""
    server_filename, address = form.text("server_filename", limit=NAME_LIMIT, required=False), form.get("installer_url")
    if not server_filename and not address:
        raise InvalidField(
            "file",
            "or server_filename or installer_url is required: the installer, the name that its upload gave, or the "
            "address where it stays",
        )
    if server_filename and address:
        raise InvalidRequest("Send either the installer or its `installer_url`, not both.")
    if address and not form.get("installer_sha256"):
        raise InvalidField("installer_sha256", "is required with installer_url: clients hold the file against it")
    if not address and form.get("installer_sha256"):
        raise InvalidField("installer_sha256", "is for installer_url only; that of a stored file is known")
    return server_filename, parse_address(address) if address else ""


def _sha256(form: Form) -> str:
    try:
        return SHA256.check(form.get("installer_sha256"), Source.FORM).lower()
    except ValueError as problem:
        raise InvalidField("installer_sha256", str(problem)) from None


def _trimmed(form: Form, name: str, limit: int, *, required: bool = True) -> str:
    text = form.text(name, limit=limit, required=required)
    if text != text.strip():
        raise InvalidField(name, "must not begin or end with a space", reason="outer_space")
    return text


def _guid(form: Form, name: str) -> str:
    text = form.get(name) or ""
    if text and not _GUID.fullmatch(text):
        message = "must be a GUID in braces, such as {01234567-89AB-CDEF-0123-456789ABCDEF}"
        raise InvalidField(name, message, reason="not_a_guid")
    return text


def _nested_type(form: Form) -> FileType | None:
    return form.choice("file_type_nested", FileType) if form.get("file_type_nested") else None


def _nested_paths(form: Form) -> tuple[str, ...]:
    """Return relative paths inside the archive; a path may have commas."""
    paths = [clean("file_nested_path", path, limit=PATH_LIMIT) for path in form.fields.get("file_nested_path", ())]
    for path in paths:
        if _ABSOLUTE.match(path) or ".." in re.split(r"[/\\]", path):
            raise InvalidField("file_nested_path", "must be a path inside the archive", reason="outside_archive")
    return tuple(path for path in paths if path)


def _package_dependencies(form: Form) -> tuple[PackageDependency, ...]:
    identifiers = form.fields.get("dep_pkg_identifier", ())
    minimums = form.fields.get("dep_pkg_min_version", ()) or ("",) * len(identifiers)
    if len(identifiers) != len(minimums):
        raise InvalidField("dep_pkg_min_version", "must be sent once for each dep_pkg_identifier")
    dependencies = []
    for identifier, minimum in zip(identifiers, minimums, strict=True):
        dependency = PackageDependency(
            clean("dep_pkg_identifier", identifier, limit=VERSION_LIMIT),
            clean("dep_pkg_min_version", minimum, limit=VERSION_LIMIT),
        )
        if dependency.package_id:
            dependencies.append(dependency)
        elif dependency.min_version:
            raise InvalidField("dep_pkg_identifier", "is required with dep_pkg_min_version")
    return tuple(dependencies)


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
