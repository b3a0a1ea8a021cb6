"""Checks of the policy for releases, of the releases of versions, and of the signers of deleted ones."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import bson
from pydantic import Field

from catalog_service.model.releases import AUDITED_AS, audit_entry, release_document, release_of
from catalog_service.model.stages import ReleaseStatus
from catalog_service.releases.policy import Policy, Ring
from catalog_service.releases.policy_edits import NAMES, edited, texts
from catalog_service.releases.store import TIER
from common.mongo import Document
from deploy.backup.manifest import StrictModel
from deploy.tenant_archive.record_types import Record, checked, require
from upload_service.inspection.signatures.model import NAME_LIMIT

POLICIES = "catalog.release_policies.bson"
SIGNERS = "catalog.package_signers.bson"
OPERATIONS = {*AUDITED_AS.values(), "retention"}  # of automatic changes
RELEASE_LIMIT = 1 << 20  # bytes


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
    package_key: Annotated[str, Field(min_length=1, max_length=3000), checked(_has_no_nul)]
    signer: Annotated[str, Field(min_length=1, max_length=NAME_LIMIT), checked(_has_no_nul)] | None
    rank: Annotated[int, Field(ge=0, lt=3 * TIER)]


def check_policy(document: Document) -> None:
    PolicyRecord.model_validate(document)
    policy = Policy.model_validate({name: document[name] for name in NAMES})
    fields = {**texts(policy), "rings": ",".join(policy.rings)}
    require(edited(Policy(), fields) == policy)


def checked_release(release: dict[str, Any]) -> dict[str, Any]:
    """The record must be as the product writes it; automatic changes name no user."""
    written = release_document(release_of(release))
    require(release.keys() <= written.keys() and len(bson.encode(release)) <= RELEASE_LIMIT)
    require(bson.encode({name: written[name] for name in release}) == bson.encode(release))
    require(b"\0" not in b"".join(text.encode() for text in _texts(release)))
    require(isinstance(written["fence"], int) and 0 <= written["fence"] < 2**62)
    for entry in written["unaudited"]:
        require(entry["operation"] in OPERATIONS and datetime.fromisoformat(entry["at"]))
        expected = audit_entry(entry["at"], entry["operation"], entry["target"])
        require({**expected, "id": entry["id"]} == entry and isinstance(entry["id"], str))
    return release


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.items() for part in item for text in _texts(part)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []
