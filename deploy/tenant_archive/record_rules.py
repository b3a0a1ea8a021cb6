"""The rules for the records of an archive: our forms accept their values, and our stores write them in this way."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain
from typing import Annotated, Literal

import bson
from pydantic import Field, ValidationError

from auth_service.audit.store import parse_document
from auth_service.users.passwords import has_our_parameters
from auth_service.users.service import parse_username
from common.auth.roles import Role
from common.errors import Problem
from common.http.bodies import FORM_LIMIT
from common.mongo import Document
from deploy.tenant_archive.catalog_records import FinishedUploadRecord, check_package, check_version
from deploy.tenant_archive.client_records import check_client, check_entry, check_group, check_release
from deploy.tenant_archive.record_types import BadRecord, Digest, Record, checked, require
from deploy.tenant_archive.release_records import POLICIES, SIGNERS, SignerRecord, check_policy

_ENTRY_ID = re.compile("[0-9a-f]{24,32}")  # The ids of the first releases were shorter.
_DIGEST = re.compile("[0-9a-f]{64}")
OTHER_PARAMETERS = "has other argon2 parameters than this product; give the user a new password there and export again"
RoleName = Annotated[str, checked(Role)]


class UserRecord(Record):
    username: Annotated[str, checked(parse_username)]
    password_hash: Annotated[str, checked(has_our_parameters, OTHER_PARAMETERS)]
    created_at: datetime
    roles: Annotated[list[RoleName], Field(min_length=1, max_length=len(Role))]
    # An archive has no users of an identity provider.
    issuer: Literal[""]
    subject: Literal[""]
    name: Literal[""]
    email: Literal[""]
    is_break_glass: bool


class AuditHeadRecord(Record):
    sequence: Annotated[int, Field(ge=1, lt=2**63)]
    hash: Digest
    seal: Digest


def check_audit_entry(document: Document) -> None:
    """An entry has the values of at most one form, so it is not larger than the largest form."""
    chained = parse_document(document)
    if chained is None or len(bson.encode(document)) > FORM_LIMIT:
        raise BadRecord("is not an entry of an audit log")
    entry = chained.entry
    require(_ENTRY_ID.fullmatch(entry.entry_id) and chained.sequence >= 1 and entry.status in range(100, 600))
    require(_DIGEST.fullmatch(chained.previous) and _DIGEST.fullmatch(chained.hash))
    texts = [entry.operation, entry.user, entry.ip, entry.request_id, *chain(*entry.target.items())]
    texts += chain(*((name, *values) for name, values in entry.changes.items()))
    require(not any("\0" in text for text in texts))


CHECKS: Mapping[str, Callable[[Document], object]] = {
    "catalog.packages.bson": check_package,
    "catalog.versions.bson": check_version,
    POLICIES: check_policy,
    SIGNERS: SignerRecord.model_validate,
    "catalog.finished_uploads.bson": FinishedUploadRecord.model_validate,
    "clients.releases.bson": check_release,
    "clients.clients.bson": check_client,
    "clients.entries.bson": check_entry,
    "clients.groups.bson": check_group,
    "auth.audit_log.bson": check_audit_entry,
    "auth.audit_heads.bson": AuditHeadRecord.model_validate,
    "auth.users.bson": UserRecord.model_validate,
}


def check_record(name: str, document: Document) -> None:
    """Raise BadRecord if the product cannot have written this record of a file."""
    try:
        CHECKS[name](document)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadRecord(f"{field}: {first['msg'].removeprefix('Value error, ')}") from None
    except Problem as problem:
        raise BadRecord(problem.detail) from None
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        raise BadRecord("has values of another kind than this product writes") from None
