"""Checks of client_registry's records: the values, put into the interface's form again, must be parsed as the same."""

from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import Field

from catalog_service.releases.policy import Ring
from client_registry import forms
from client_registry.blacklist.model import Entry
from client_registry.clients.tokens import HINT_LENGTH
from common.http.forms import MAX_INTEGER, Form
from common.mongo import Document
from deploy.backup.manifest import StrictModel
from deploy.tenant_archive.record_types import Digest, Record, ServerFilename, Size, Uuid, checked, require

IP_LIMIT = 64  # characters, the zone of an IPv6 address included
PackageIds = Annotated[list[str], Field(max_length=1000)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class InstallerRecord(StrictModel):
    server_filename: ServerFilename
    size: Size
    sha256: Digest


class ReleaseRecord(Record):
    uid: Uuid
    version: str
    status: Literal["active"]
    published_at: datetime
    installer: InstallerRecord | None
    reserved_at: datetime | None = None


class ClientRecord(Record):
    client_id: Uuid
    name: str
    name_key: str
    token_digest: Digest
    token_key: Annotated[str, Field(pattern="^([0-9a-f]{16})?$")] = ""
    token_hint: Annotated[str, Field(max_length=HINT_LENGTH, pattern="^[0-9a-f]*$")]
    seat: Count
    ip: Annotated[str, Field(max_length=IP_LIMIT), checked(ip_address)] | None
    last_seen: datetime | None
    program: Count
    enabled: bool
    ring: Ring | Literal[""]
    created_at: datetime
    entries_added: Annotated[int, Field(ge=0)] = 0


class EntryRecord(Record):
    entry_id: Uuid
    client_id: str | None
    network: str | None
    package_ids: PackageIds
    group_id: str | None
    created_at: datetime


class GroupRecord(Record):
    group_id: Uuid
    name: str
    name_key: str
    package_ids: PackageIds
    created_at: datetime
    entries_added: Annotated[int, Field(ge=0)] = 0


def check_release(document: Document) -> None:
    record = ReleaseRecord.model_validate(document)
    file_name = record.installer.server_filename if record.installer else ""
    form = Form({"version": (record.version,), "server_filename": (file_name,)})
    require(forms.new_release(form) == (record.version, file_name))


def check_client(document: Document) -> None:
    record = ClientRecord.model_validate(document)
    require(forms.client_name(Form({"client_name": (record.name,)})) == record.name)
    require(record.name_key == record.name.casefold())


def check_entry(document: Document) -> None:
    record = EntryRecord.model_validate(document)
    texts = {"client_id": record.client_id, "group": record.group_id, "network": record.network}
    package_ids = tuple(record.package_ids)
    form = Form({**{name: (text or "",) for name, text in texts.items()}, "package_ids": package_ids})
    stored = Entry(record.entry_id, record.client_id, record.network, package_ids, record.group_id, record.created_at)
    parsed = replace(forms.new_entry(form), entry_id=record.entry_id, created_at=record.created_at)
    require(parsed == stored)


def check_group(document: Document) -> None:
    record = GroupRecord.model_validate(document)
    package_ids = tuple(record.package_ids)
    require(forms.new_group(Form({"name": (record.name,), "package_ids": package_ids})) == (record.name, package_ids))
    require(record.name_key == record.name.casefold())
