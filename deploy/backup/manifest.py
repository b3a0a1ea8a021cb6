"""The manifests of backups and archives, and the error of both."""

import re
from typing import Annotated, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

RECORDS = re.compile(r"([a-z]{1,32})\.([a-z_]{1,64})\.bson")
MAX_ENTRIES = 2_000_000
AnyManifest = TypeVar("AnyManifest", bound="Manifest")


class BackupProblem(Exception):
    """A backup or an archive cannot be made or read; the text is the reason in one line."""


class StrictModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Entry(StrictModel):
    """A file. `size` is bytes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    size: Annotated[int, Field(ge=0, le=2**40)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(StrictModel):
    """`keys` has the fingerprints of the keys that the records were made with, by their settings.

    `records` are collections, each a file `<database>.<collection>.bson` of consecutive documents. `schemas` has the
    schema version of each database; a manifest without one was made before there were migrations.
    """

    format: Literal[1] = 1
    made_at: Annotated[AwareDatetime, Field(strict=False)]
    keys: dict[str, list[str]]
    schemas: dict[str, Annotated[int, Field(ge=0)]] = {}
    records: Annotated[list[Entry], Field(max_length=1000)]


class BackupManifest(Manifest):
    """Of an installation; `lacking` are installers, `<tenant>/<file>`, that were missing or damaged at that time."""

    lacking: Annotated[list[str], Field(max_length=MAX_ENTRIES)]


class ArchiveManifest(Manifest):
    """Of one tenant. `files` are its installers in the order of their records; `audit_head` is the head of its log."""

    tenant_id: str
    audit_head: str
    files: Annotated[list[Entry], Field(max_length=MAX_ENTRIES)]


def parse(kind: type[AnyManifest], text: bytes, where: str) -> AnyManifest:
    """Raises BackupProblem."""
    try:
        manifest = kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BackupProblem(f"{where}: is not a manifest of this version ({place}: {first['msg']})") from None
    names = [entry.name for entry in manifest.records]
    if len(set(names)) < len(names) or not all(RECORDS.fullmatch(name) for name in names):
        raise BackupProblem(f"{where}: names a file of records twice, or an invalid one")
    return manifest
