"""Checks of the policy for releases, of the releases of versions, and of the signers of deleted ones."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import bson
from pydantic import Field

from auth_service.tokens.model import NAME_LIMIT
from auth_service.users.model import USERNAME_LIMIT
from auth_service.users.service import parse_username
from catalog_service.model.releases import AUDITED_AS, audit_entry, release_document, release_of
from catalog_service.model.stages import ReleaseStatus
from catalog_service.releases.policy import Policy, Ring
from catalog_service.releases.policy_edits import NAMES, edited, texts
from catalog_service.releases.store import TIER
from common.auth.api_tokens import USER_PREFIX
from common.http.forms import clean
from common.mongo import Document
from deploy.backup.manifest import StrictModel
from deploy.operator.audit import OPERATOR_PREFIX
from deploy.tenant_archive.record_types import Record, checked, require
from upload_service.inspection.signatures import model as signatures

POLICIES = "catalog.release_policies.bson"
SIGNERS = "catalog.package_signers.bson"
OPERATIONS = {*AUDITED_AS.values(), "retention"}  # of automatic changes
RELEASE_LIMIT = 1 << 20  # bytes
TEXT_LIMIT = 4096  # characters of each of its texts
_NAME_LIMITS = {USER_PREFIX: NAME_LIMIT, OPERATOR_PREFIX: USERNAME_LIMIT}  # characters


def _has_no_nul(text: str) -> bool:
    return "\0" not in text


class StageRecord(StrictModel):
    rings: list[Ring | Literal["*"]]
    status: Annotated[ReleaseStatus, Field(strict=False)]


class PolicyRecord(Record):
    rings: list[str]
    gates: dict[str, Any]
    retention: list[Any]


class SignerRecord(Record):
    id_key: Annotated[str, Field(min_length=1, max_length=3000), checked(_has_no_nul)]
    signer: Annotated[str, Field(min_length=1, max_length=signatures.NAME_LIMIT), checked(_has_no_nul)] | None
    rank: Annotated[int, Field(ge=0, lt=3 * TIER)]


def check_policy(document: Document) -> None:
    PolicyRecord.model_validate(document)
    policy = Policy.model_validate({name: document[name] for name in NAMES})
    fields = {**texts(policy), "rings": ",".join(policy.rings)}
    require(edited(Policy(), fields) == policy)


def checked_release(release: dict[str, Any]) -> dict[str, Any]:
    """The record must be as the product writes it; automatic changes name no user. Raises BadRecord and Problem."""
    parsed = release_of(release)
    written = release_document(parsed)
    require(release.keys() <= written.keys() and len(bson.encode(release)) <= RELEASE_LIMIT)
    require(bson.encode({name: written[name] for name in release}) == bson.encode(release))
    require(all(len(text) <= TEXT_LIMIT and "\0" not in text for text in _texts(release)))
    people = {parsed.publisher, *(item.by for item in parsed.approvals), *(entry.by for entry in parsed.entered)}
    people.update((event.by for event in parsed.history), *(gate.by for gate in parsed.gates))
    require(all(map(is_author, people)))
    require(isinstance(written["fence"], int) and 0 <= written["fence"] < 2**62)
    for entry in written["unaudited"]:
        require(entry["operation"] in OPERATIONS and datetime.fromisoformat(entry["at"]))
        expected = audit_entry(entry["at"], entry["operation"], entry["target"])
        require({**expected, "id": entry["id"]} == entry and isinstance(entry["id"], str))
    return release


def is_author(name: str) -> bool:
    """Whether this is the name of a user, an API token or an operator, or "" for nobody. Raises Problem."""
    for prefix, limit in _NAME_LIMITS.items():
        if name.startswith(prefix):
            return clean("name", name, limit=len(prefix) + limit) == name != prefix
    return not name or parse_username(name) == name


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.items() for part in item for text in _texts(part)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []
