"""Packages and installers to publish with the fields of the creation forms, the results, and the problems.

The problems of the server are `common.errors.UpstreamProblem`.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope
from common.errors import Problem

GENERATIONS = 5  # transfers that are attempted for one version, see `Installer.file_ids`


@dataclass(frozen=True)
class NewPackage:
    """A package to add where it does not exist. `logo` is a PNG or JPEG image, or empty.

    `more` has the optional fields of the form under the interface's names.
    """

    name: str
    publisher: str
    description: str = ""
    logo: bytes = b""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def form(self) -> list[tuple[str, str]]:
        """The fields of the creation form without the id and the logo."""
        return [
            ("package_name", self.name),
            ("package_publisher", self.publisher),
            ("package_description", self.description),
            *self.more,
        ]


@dataclass(frozen=True)
class Installer:
    """A file, and the package version to create from it.

    `more` has the optional fields of the creation form under the interface's names. `sha256` is the expected
    hexadecimal digest, and `url` the publisher's address of the file; both are empty if unknown. A file that `stays`
    at its address is not sent.
    """

    path: Path
    package_id: str
    version: str
    architecture: Architecture
    file_type: FileType
    scope: Scope = Scope.MACHINE
    locale: Locale = Locale.EN_US
    channel: str = "stable"
    nested_type: str = ""
    more: tuple[tuple[str, str], ...] = ()
    sha256: str = ""
    url: str = ""
    stays: bool = False

    @property
    def key(self) -> Mapping[str, str]:
        """The fields that identify an installer within a package, as a version is listed."""
        return {
            "VERSION": self.version,
            "ARCHITECTURE": self.architecture,
            "INSTALLER_TYPE": self.file_type,
            "INSTALLER_NESTED_TYPE": self.nested_type,
            "INSTALLER_SCOPE": self.scope,
            "LOCALE": self.locale,
            "CHANNEL": self.channel,
        }

    @property
    def form(self) -> list[tuple[str, str]]:
        """The fields of the creation form without the file."""
        return [
            ("package_version", self.version),
            ("file_architect", self.architecture),
            ("file_type", self.file_type),
            ("file_scope", self.scope),
            ("package_locale", self.locale),
            ("channel", self.channel),
            ("file_type_nested", self.nested_type),
            *self.more,
        ]

    def file_ids(self, sha256: str) -> Iterator[str]:
        """The X-File-IDs for these bytes, the same in every run.

        The next one is used if the transfer under the one before is damaged, cancelled, or used by another version.
        """
        content = "\0".join((sha256, self.package_id, self.version, self.architecture))
        for generation in range(GENERATIONS):
            yield hashlib.sha256(f"{content}\0{generation}".encode()).hexdigest()


@dataclass(frozen=True)
class Published:
    """A published version. `size` and `resumed_from` are bytes.

    `created` is False if the version existed before with the same bytes. `shared` are the `shared_identities` of
    `get_version_details`. `warnings` are sentences about the file and its fields.
    """

    installer: Installer
    uid: str
    sha256: str
    size: int
    resumed_from: int
    created: bool
    shared: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """The output of `--json`."""
        return {
            "file": str(self.installer.path),
            "uid": self.uid,
            "version": self.installer.version,
            "architecture": self.installer.architecture,
            "sha256": self.sha256,
            "size": self.size,
            "resumed_from": self.resumed_from,
            "created": self.created,
            "shared_identities": list(self.shared),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class NotPublished:
    """A file that was not published, and the reason."""

    installer: Installer
    problem: Problem

    def document(self) -> dict[str, Any]:
        """The output of `--json`."""
        return {
            "file": str(self.installer.path),
            "version": self.installer.version,
            "architecture": self.installer.architecture,
            "error": {"code": self.problem.code, "detail": self.problem.detail},
        }


class Unreachable(Problem):
    """The server did not answer completely; it may later."""

    code = "unreachable"


class LastingProblem(Problem):
    """A problem that a retry does not solve."""

    status = 409


class NotTheInterface(LastingProblem):
    """The address does not lead to the interface."""

    code = "not_the_interface"


class Untrusted(LastingProblem):
    """The server's certificate does not verify."""

    code = "certificate_not_trusted"


class FileUnusable(LastingProblem):
    """The file is empty, or cannot be read."""

    code = "file_unusable"


class FileChanged(LastingProblem):
    """The file changed after its digest was made."""

    code = "file_changed"


class UploadCancelled(LastingProblem):
    """Another client cancelled the transfer while this run sent it."""

    code = "upload_cancelled"


class OtherBytes(LastingProblem):
    """The file does not have the expected SHA-256."""

    code = "sha256_differs"
    text = "{path} has the SHA-256 {actual}, not {expected}."


class VersionTaken(LastingProblem):
    """The package has this version with another installer."""

    code = "version_exists"


class StoredDifferently(LastingProblem):
    """The server stored other bytes than those of the file."""

    code = "stored_differently"


class StoredDamaged(LastingProblem):
    """The version exists with the same bytes, but its stored file is missing or altered."""

    code = "installer_damaged"


def is_transient(problem: Problem) -> bool:
    """Whether a retry may succeed: the server is away or busy."""
    return problem.status == 429 or (problem.status >= 500 and problem.code != "transfer_damaged")


def retry_delay(error: Exception, timeout: float) -> bool | float:
    """Whether to retry, for stamina: the seconds that the server asks for, or True for a growing pause."""
    if not isinstance(error, Problem) or not is_transient(error):
        return False
    if error.retry_after is None:
        return True
    return max(1.0, error.retry_after) if error.retry_after <= timeout else False


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds of `Retry-After`; None without one, or for a date."""
    text = headers.get("Retry-After", "")
    return int(text) if text.isdecimal() and len(text) < 10 else None
