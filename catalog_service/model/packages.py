"""Packages, queries for them, and the errors of packages and versions."""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from catalog_service.model.identities import IdentityKind, identities_of
from catalog_service.model.manifest import PackageManifest
from catalog_service.model.manifest_fields import to_document
from catalog_service.model.winget_rules import Refusal
from common.errors import Conflict, NotFound, Problem

AUDIT_TEXT_LIMIT = 256  # characters; the audit log has longer texts by their SHA-256
NO_MANIFEST = PackageManifest()


@dataclass(frozen=True)
class Package:
    """A package of a tenant. `logo` is a PNG image, or empty. The catalog does not show its manifest.

    `package_uid` distinguishes a package from a deleted one with the same `package_id`. `edits` counts its changes.
    """

    package_id: str
    package_uid: str
    name: str
    publisher: str
    description: str = ""
    logo: bytes = b""
    active: bool = True
    manifest: PackageManifest = NO_MANIFEST
    edits: int = field(default=0, compare=False)

    @property
    def identities(self) -> dict[str, list[str]]:
        """The identities of its program, by the fields of the document."""
        return _identities(self.name, [texts.package_name for texts in self.manifest.locales])


def package_document(package: Package) -> dict[str, Any]:
    """Return all fields by their names, the key of the id, and the identities of the names."""
    manifest = to_document(package.manifest)
    return {**vars(package), "manifest": manifest, "id_key": id_key(package.package_id), **package.identities}


def id_key(package_id: str) -> str:
    """Return the same text for ids that differ in letter case, or in forms of letters such as wide ones, only."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", package_id).casefold())


def _identities(name: str, local_names: Iterable[str]) -> dict[str, list[str]]:
    """Return the identities of names, in the default language and in others, by the fields of the document."""
    return {
        "identities": identities_of({IdentityKind.NAME: [name]}),
        "local_identities": identities_of({IdentityKind.NAME: local_names}),
    }


@dataclass(frozen=True)
class PackageChanges:
    """Changes of a package; None keeps the old value.

    `manifest` has the changed fields of its manifest, as documents have them; an empty value removes the field.
    """

    name: str | None = None
    publisher: str | None = None
    description: str | None = None
    logo: bytes | None = None
    active: bool | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        """The changed fields of the package itself."""
        return {name: value for name, value in vars(self).items() if value is not None and name != "manifest"}

    @property
    def identities(self) -> dict[str, list[str]]:
        """The changed identities, by the fields of the document."""
        local_names = [texts.get("package_name", "") for texts in self.manifest.get("locales") or ()]
        changed = _identities(self.name or "", local_names)
        sent = {"identities": self.name is not None, "local_identities": "locales" in self.manifest}
        return {field: identities for field, identities in changed.items() if sent[field]}

    def to_audit_texts(self) -> dict[str, str]:
        """Return the values as texts for the audit log; long texts and logos by their SHA-256."""
        return {name: audit_text(value) for name, value in {**self.fields, **self.manifest}.items()}


def audit_text(value: Any) -> str:
    """Return a value as a text for the audit log; a long text or a logo by its SHA-256."""
    if isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, str | bytes | None):
        value = json.dumps(value)
    content = value.encode() if isinstance(value, str) else value
    if isinstance(value, str) and len(value) <= AUDIT_TEXT_LIMIT:
        return value
    return f"sha256:{hashlib.sha256(content).hexdigest()}" if content else ""


class PackageChanged(Problem):
    """`If-Match` names an earlier state."""

    status = 412
    code = "package_changed"
    text = "Somebody else changed this package since you read it. Read it again, then make your change."


class PackageExists(Problem):
    """The package id is taken."""

    status = 401  # The interface answers a duplicate package ID with 401.
    code = "package_exists"
    text = "There is a package {package_id!r} already."


class PackageNotFound(NotFound):
    code = "package_not_found"
    text = "There is no package {package_id!r}."


class VersionExists(Conflict):
    """The version, or this installer of it, exists already."""

    code = "version_exists"
    text = "The package has version {version!r} already."


class VersionNotFound(NotFound):
    code = "version_not_found"
    text = "There is no version with the UID {uid!r}."


class Order(StrEnum):
    """The sort key of packages; equal ones are sorted by id."""

    ID = "id"
    NAME = "name"
    PUBLISHER = "publisher"
    ACTIVE = "active"


@dataclass(frozen=True)
class PackageQuery:
    """A query: `text` is part of the id, name or publisher, in any letter case; `active` None is both.

    No `package_ids` select all packages.
    """

    text: str = ""
    package_ids: tuple[str, ...] = ()
    active: bool | None = None
    order: Order = Order.ID
    descending: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True)
class PackageSummary:
    """A package without its long fields, in a list. `logo` changes with the image, "" for none.

    `winget_refusal` is the reason why winget clients see no version of it, if any.
    """

    package_id: str
    name: str
    publisher: str
    active: bool
    versions: int = 0
    newest_version: str = ""
    logo: str = ""
    winget_refusal: Refusal | None = None
