"""The rules for the records of an archive: our own forms accept their values, and our own stores write them so.

A pydantic model has the fields of each collection and their types, and refuses all others. The values that an
administrator once sent in a form are put into that form again, and its parser has to return the same values.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address
from itertools import chain
from typing import Annotated, Any, Literal

import bson
import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from auth_service.audit.store import link_of
from auth_service.users.passwords import has_our_parameters
from auth_service.users.service import parse_username
from catalog_service import forms as catalog_forms
from catalog_service import views
from catalog_service.logos.model import EDGE, LOGO_LIMIT
from catalog_service.model.manifest.fields import from_document, to_document
from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.packages import Package
from catalog_service.packages.service import DescribedPackage
from catalog_service.versions.documents import document_of, version_of
from catalog_service.versions.forms import parse_version
from client_registry import forms as client_forms
from client_registry.clients.tokens import HINT_LENGTH
from client_registry.model import uuid_text
from common.errors import Problem
from common.http.bodies import FORM_LIMIT
from common.http.forms import MAX_INTEGER, Form
from common.mongo import Document
from common.tenants import is_tenant_id
from upload_service.content_range import MAX_TOTAL, parse_file_id, parse_server_filename

IP_LIMIT = 64  # characters, the zone of an IPv6 address included
_ENTRY_ID = re.compile("[0-9a-f]{24,32}")  # The ids of the first releases were shorter.
_DIGEST = re.compile("[0-9a-f]{64}")
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


class BadRecord(Exception):
    """A record that this product does not write; the text says why, as far as that is known."""


def _require(is_met: object) -> None:
    if not is_met:
        raise BadRecord("has values that no form accepts")


def _checked(check: Callable[[str], object], reason: str = "is not as this product writes it") -> AfterValidator:
    """A validator that refuses a text for which the check is false, or raises Problem."""

    def validate(text: str) -> str:
        try:
            is_valid = check(text)
        except Problem as problem:
            raise ValueError(problem.detail) from None
        if not is_valid:
            raise ValueError(reason)
        return text

    return AfterValidator(validate)


Uuid = Annotated[str, _checked(lambda text: uuid_text(text) == text)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=MAX_TOTAL)]
ServerFilename = Annotated[str, _checked(parse_server_filename)]
FileId = Annotated[str, _checked(lambda text: parse_file_id([text]))]
PackageIds = Annotated[list[str], Field(max_length=1000)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    object_id: Annotated[InstanceOf[bson.ObjectId], Field(alias="_id")]
    tenant_id: Annotated[str, _checked(is_tenant_id)]


class _PackageRecord(_Record):
    halfway: Literal[False]
    package_id: str
    package_uid: Uuid
    name: str
    publisher: str
    description: str
    logo: Annotated[bytes, Field(max_length=LOGO_LIMIT)] = b""
    active: bool
    manifest: dict[str, Any] = {}


class _VersionRecord(BaseModel):
    """The fields that the store adds to the document of a version."""

    model_config = ConfigDict(extra="ignore", strict=True)

    object_id: Annotated[InstanceOf[bson.ObjectId], Field(alias="_id")]
    halfway: Literal[False]
    state: Literal["active"]
    uid: Uuid
    package_uid: Uuid
    version: str
    version_key: str
    installer_key: str
    changed_at: datetime | None = None
    server_filename: Literal[""] | ServerFilename
    size: Size
    sha256: Digest


class _FinishedUploadRecord(_Record):
    server_filename: ServerFilename
    linked: Literal[True]
    expires_at: datetime
    file_id: FileId | None = None
    size: Size = 0
    sha256: Digest | None = None
    finished_at: datetime | None = None


class _InstallerRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    server_filename: ServerFilename
    size: Size
    sha256: Digest


class _ReleaseRecord(_Record):
    uid: Uuid
    version: str
    status: Literal["active"]
    published_at: datetime
    installer: _InstallerRecord | None
    reserved_at: datetime | None = None


class _ClientRecord(_Record):
    client_id: Uuid
    name: str
    name_key: str
    token_digest: Digest
    token_hint: Annotated[str, Field(max_length=HINT_LENGTH, pattern="^[0-9a-f]*$")]
    seat: Annotated[int, Field(ge=0, le=MAX_INTEGER)]
    ip: Annotated[str, Field(max_length=IP_LIMIT), _checked(ip_address)] | None
    last_seen: datetime | None
    program: Annotated[int, Field(ge=0, le=MAX_INTEGER)]
    enabled: bool
    created_at: datetime
    entries_added: Annotated[int, Field(ge=0)] = 0


class _EntryRecord(_Record):
    entry_id: Uuid
    client_id: str | None
    network: str | None
    package_ids: PackageIds
    group_id: str | None
    created_at: datetime


class _GroupRecord(_Record):
    group_id: Uuid
    name: str
    name_key: str
    package_ids: PackageIds
    created_at: datetime
    entries_added: Annotated[int, Field(ge=0)] = 0


class _UserRecord(_Record):
    username: Annotated[str, _checked(parse_username)]
    password_hash: Annotated[
        str,
        _checked(
            has_our_parameters,
            "has other argon2 parameters than this product; give the user a new password there and export again",
        ),
    ]
    created_at: datetime


class _AuditHeadRecord(_Record):
    sequence: Annotated[int, Field(ge=1, lt=2**63)]
    hash: Digest
    seal: Digest


def _check_package(document: Document) -> None:
    record = _PackageRecord.model_validate(document)
    package = Package(
        record.package_id,
        record.package_uid,
        record.name,
        record.publisher,
        record.description,
        record.logo,
        record.active,
    )
    described = DescribedPackage(package, from_document(PackageManifest, record.manifest))
    parsed = catalog_forms.package_of(_form_of(views.package_details(described)), record.logo)
    again = replace(parsed.package, package_uid=package.package_uid, active=package.active)
    _require(again == package)
    _require(_is_same(to_document(parsed.manifest), record.manifest))
    _require(not record.logo or _is_logo(record.logo))


def _check_version(document: Document) -> None:
    record, version = _VersionRecord.model_validate(document), version_of(document)
    form = _form_of({**views.version_details(version, []), "server_filename": version.server_filename})
    parsed = parse_version(form, catalog_forms.package_id(version.package_id))
    again = document_of(replace(parsed, uid=record.uid, size=record.size, sha256=record.sha256))
    added = {name: document[name] for name in (*_VersionRecord.model_fields, "_id", "tenant_id") if name in document}
    earlier = {"manifest": {}, "installer_url": ""}  # Earlier releases did not write these fields.
    _require(_is_same({**added, **again}, {**earlier, **document}))
    _require(record.installer_key == version.installer_key)
    _require(record.version_key in {version.version, version.installer_key})


def _check_release(document: Document) -> None:
    record = _ReleaseRecord.model_validate(document)
    file_name = record.installer.server_filename if record.installer else ""
    form = Form({"version": (record.version,), "server_filename": (file_name,)})
    _require(client_forms.new_release(form) == (record.version, file_name))


def _check_client(document: Document) -> None:
    record = _ClientRecord.model_validate(document)
    _require(client_forms.client_name(Form({"client_name": (record.name,)})) == record.name)
    _require(record.name_key == record.name.casefold())


def _check_entry(document: Document) -> None:
    record = _EntryRecord.model_validate(document)
    form = Form(
        {
            "client_id": (record.client_id or "",),
            "group": (record.group_id or "",),
            "network": (record.network or "",),
            "package_ids": tuple(record.package_ids),
        }
    )
    stored = record.model_dump(include={"client_id", "network", "group_id"})
    _require(client_forms.new_entry(form) == {**stored, "package_ids": tuple(record.package_ids)})


def _check_group(document: Document) -> None:
    record = _GroupRecord.model_validate(document)
    form = Form({"name": (record.name,), "package_ids": tuple(record.package_ids)})
    _require(client_forms.new_group(form) == (record.name, tuple(record.package_ids)))
    _require(record.name_key == record.name.casefold())


def _check_audit_entry(document: Document) -> None:
    """An entry tells of one form at most, so it is not larger than the largest form."""
    link = link_of(document)
    if link is None or len(bson.encode(document)) > FORM_LIMIT:
        raise BadRecord("is not an entry of an audit log")
    entry = link.entry
    _require(_ENTRY_ID.fullmatch(entry.entry_id) and link.sequence >= 1 and entry.status in range(100, 600))
    _require(_DIGEST.fullmatch(link.previous) and _DIGEST.fullmatch(link.hash))
    texts = [entry.operation, entry.user, entry.ip, entry.request_id, *chain(*entry.target.items())]
    texts += chain(*((name, *values) for name, values in entry.changes.items()))
    _require(not any("\0" in text for text in texts))


CHECKS: Mapping[str, Callable[[Document], object]] = {
    "catalog.packages.bson": _check_package,
    "catalog.versions.bson": _check_version,
    "catalog.finished_uploads.bson": _FinishedUploadRecord.model_validate,
    "clients.releases.bson": _check_release,
    "clients.clients.bson": _check_client,
    "clients.entries.bson": _check_entry,
    "clients.groups.bson": _check_group,
    "auth.audit_log.bson": _check_audit_entry,
    "auth.audit_heads.bson": _AuditHeadRecord.model_validate,
    "auth.users.bson": _UserRecord.model_validate,
}


def check_record(name: str, document: Document) -> None:
    """Raises BadRecord where a record of this file is not one that the product could have written."""
    try:
        CHECKS[name](document)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadRecord(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
    except Problem as problem:
        raise BadRecord(problem.detail) from None
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        raise BadRecord("has values of another kind than this product writes") from None


def _form_of(details: Mapping[str, Any]) -> Form:
    """The form that says what the interface shows as these details."""
    return Form({name: values for name, value in details.items() if any(values := _form_values(value))})


def _form_values(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (str(value).lower(),)
    if isinstance(value, list | tuple):
        if any(isinstance(item, Mapping) for item in value):
            return (orjson.dumps(value).decode(),)
        return tuple(str(item) for item in value)
    return (str(value),)


def _is_same(expected: Document, document: Document) -> bool:
    """Whether two documents have the same values of the same types, in whatever order."""
    return bson.encode(_sorted(expected)) == bson.encode(_sorted(document))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _is_logo(image: bytes) -> bool:
    """Whether an image begins as the logos that the catalog draws: a PNG, and not larger than they are."""
    edges = image[len(_PNG) :][:4], image[len(_PNG) :][4:8]
    return image.startswith(_PNG) and all(1 <= int.from_bytes(edge) <= EDGE for edge in edges)
