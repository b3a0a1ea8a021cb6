"""What a backup and an archive say of themselves, and what can be wrong with one."""

import re
from typing import Annotated, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

RECORDS = re.compile(r"([a-z]{1,32})\.([a-z_]{1,64})\.bson")
MOST_ENTRIES = 2_000_000
Named = TypeVar("Named", bound="Manifest")


class BackupProblem(Exception):
    """It cannot be made, or not be taken back; the text says why, in one line."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Entry(_Strict):
    """A file of it. `size` is bytes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    size: Annotated[int, Field(ge=0, le=2**40)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(_Strict):
    """`keys` has the fingerprints of the keys that something in the records was made with, by their settings.

    `records` are collections, each a file `<database>.<collection>.bson` of one document after another. `schemas` has
    how far each database was at least; a manifest that says nothing of that is from before there were migrations.
    """

    format: Literal[1] = 1
    made_at: Annotated[AwareDatetime, Field(strict=False)]
    keys: dict[str, list[str]]
    schemas: dict[str, Annotated[int, Field(ge=0)]] = {}
    records: Annotated[list[Entry], Field(max_length=1000)]


class BackupManifest(Manifest):
    """Of a whole installation; `lacking` are installers, `<tenant>/<file>`, that were missing or damaged already."""

    lacking: Annotated[list[str], Field(max_length=MOST_ENTRIES)]


class ArchiveManifest(Manifest):
    """Of one tenant. `files` are its installers in the order of their records; `audit_head` is its log's."""

    tenant_id: str
    audit_head: str
    files: Annotated[list[Entry], Field(max_length=MOST_ENTRIES)]


def parse(kind: type[Named], text: bytes, where: str) -> Named:
    """Raises BackupProblem."""
    try:
        manifest = kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BackupProblem(f"{where}: is no manifest that this version knows ({place}: {first['msg']})") from None
    names = [entry.name for entry in manifest.records]
    if len(set(names)) < len(names) or not all(RECORDS.fullmatch(name) for name in names):
        raise BackupProblem(f"{where}: names records twice, or what are none")
    return manifest
