"""Checks of catalog records: the values, put into the interface's form again, must be parsed to the same values."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

import bson
import orjson
from pydantic import AfterValidator, ConfigDict, Field

from catalog_service import forms, views
from catalog_service.logos.model import EDGE, LOGO_LIMIT
from catalog_service.model.manifest.fields import to_document
from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.packages import Package, package_document
from catalog_service.model.versions import document_of, version_of
from catalog_service.versions.forms import parse_version
from common.http.forms import Form
from common.mongo import Document
from deploy.tenant_archive.record_types import Digest, Record, ServerFilename, Size, Uuid, checked, require
from deploy.tenant_archive.release_records import StageRecord, checked_release, is_author
from upload_service.content_range import parse_file_id

_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


class PackageRecord(Record):
    halfway: Literal[False]
    package_id: str
    package_uid: Uuid
    name: str
    publisher: str
    description: str
    logo: Annotated[bytes, Field(max_length=LOGO_LIMIT)] = b""
    active: bool
    manifest: Annotated[dict[str, Any], Field(default_factory=dict)]
    id_key: str
    identities: list[str]
    local_identities: list[str]


class VersionRecord(Record):
    """The fields that the store adds to the document of a version."""

    model_config = ConfigDict(extra="ignore")

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
    published_by: Annotated[str, checked(is_author)] = ""
    stage: StageRecord | None = None
    release: Annotated[dict[str, Any], AfterValidator(checked_release)] | None = None


class FinishedUploadRecord(Record):
    server_filename: ServerFilename
    linked: Literal[True]
    expires_at: datetime
    file_id: Annotated[str, checked(lambda text: parse_file_id([text]))] | None = None
    size: Size = 0
    sha256: Digest | None = None
    finished_at: datetime | None = None


def check_package(document: Document) -> None:
    record = PackageRecord.model_validate(document)
    derived = {name: getattr(record, name) for name in ("id_key", "identities", "local_identities")}
    fields = record.model_dump(exclude={"object_id", "tenant_id", "halfway", *derived})
    package = Package(**{**fields, "manifest": PackageManifest.model_validate(record.manifest)})
    parsed = forms.package_of(_form_of(views.package_details(package)), record.logo)
    sent = replace(parsed, package_uid=package.package_uid, active=package.active, manifest=package.manifest)
    require(sent == package)
    require(derived == {name: package_document(package)[name] for name in derived})
    require(_is_same(to_document(parsed.manifest), record.manifest))
    require(not record.logo or _is_logo(record.logo))


def check_version(document: Document) -> None:
    record, version = VersionRecord.model_validate(document), version_of(document)
    form = _form_of({**views.version_details(version, [], []), "server_filename": version.server_filename})
    parsed = parse_version(form, forms.package_id(version.package_id))
    own = {name: getattr(record, name) for name in ("uid", "size", "sha256", "published_by")}
    parsed_document = document_of(replace(parsed, **own))
    added = {name: document[name] for name in (*VersionRecord.model_fields, "_id") if name in document}
    earlier = {"manifest": {}, "installer_url": "", "published_by": ""}  # Earlier releases did not write these fields.
    require(_is_same({**added, **parsed_document}, {**earlier, **document}))
    require(record.installer_key == version.installer_key)
    require(record.version_key in {version.version, version.installer_key})


def _form_of(details: Mapping[str, Any]) -> Form:
    """The form with the values that the interface shows as these details."""
    return Form({name: values for name, value in details.items() if any(values := _form_values(value))})


def _form_values(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (str(value).lower(),)
    if isinstance(value, Mapping):
        return (orjson.dumps(value).decode(),)
    if isinstance(value, list | tuple):
        if any(isinstance(item, Mapping) for item in value):
            return (orjson.dumps(value).decode(),)
        return tuple(str(item) for item in value)
    return (str(value),)


def _is_same(expected: Document, document: Document) -> bool:
    """Whether two documents have the same values of the same types, in any order."""
    return bson.encode(_sorted(expected)) == bson.encode(_sorted(document))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _is_logo(image: bytes) -> bool:
    """Whether an image begins as the catalog writes logos: a PNG of at most `EDGE` pixels."""
    edges = image[len(_PNG) :][:4], image[len(_PNG) :][4:8]
    return image.startswith(_PNG) and all(1 <= int.from_bytes(edge) <= EDGE for edge in edges)
