"""The field types that the records of an archive share. A record with other fields or types is refused."""

from collections.abc import Callable
from typing import Annotated

import bson
from pydantic import AfterValidator, Field, InstanceOf

from client_registry.clients.model import uuid_text
from common.errors import Problem
from common.tenants import is_tenant_id
from deploy.backup.manifest import StrictModel
from upload_service.content_range import MAX_TOTAL
from upload_service.storage.file_names import parse_server_filename


class BadRecord(Exception):
    """A record that this product does not write; the text is the reason."""


def require(is_met: object) -> None:
    """Raise BadRecord unless the condition is met."""
    if not is_met:
        raise BadRecord("has values that no form accepts")


def checked(check: Callable[[str], object], reason: str = "is not as this product writes it") -> AfterValidator:
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


ObjectId = Annotated[InstanceOf[bson.ObjectId], Field(alias="_id")]
Uuid = Annotated[str, checked(lambda text: uuid_text(text) == text)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=MAX_TOTAL)]
ServerFilename = Annotated[str, checked(parse_server_filename)]


class Record(StrictModel):
    """A record of one tenant."""

    object_id: ObjectId
    tenant_id: Annotated[str, checked(is_tenant_id)]
