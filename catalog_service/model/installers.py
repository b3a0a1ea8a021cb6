"""Installer files as upload_service knows them: their content, damage, checks and downloads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime


@dataclass(frozen=True)
class InstallerFile:
    """A file at upload_service: size in bytes, hexadecimal SHA-256 digest, and the identifiers found in it."""

    size: int
    sha256: str
    product_code: str = ""
    upgrade_code: str = ""
    package_family_name: str = ""
    signature_sha256: str = ""


@dataclass(frozen=True)
class FinishedUpload:
    """A complete installer file without a known version."""

    server_filename: str
    file_id: str
    size: int
    sha256: str
    finished_at: datetime


@dataclass(frozen=True)
class DamagedFile:
    """A file that is not served any more. `version_uid`, `package_id` and `version` are "" if no version has it."""

    server_filename: str
    version_uid: str
    damage: str
    found_at: datetime
    package_id: str = ""
    version: str = ""


@dataclass(frozen=True)
class Scan:
    """The verdict of a scanner; `state` is `clean`, `infected`, `too_large` or another one, which is no verdict."""

    state: str = ""
    reason: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Signature:
    """The state of a signature; `signer` is the subject of its certificate."""

    state: str = ""
    signer: str = ""
    reason: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class FileChecks:
    """The checks of the file with this digest."""

    sha256: str
    scan: Scan = field(default_factory=Scan)
    signature: Signature = field(default_factory=Signature)


@dataclass(frozen=True)
class Downloads:
    """The last day of a download by version uid. `since` is the day on which counting began, if any."""

    since: date | None = None
    last_days: Mapping[str, date] = field(default_factory=dict)

    def may_be_downloaded(self, uid: str, first_day: date) -> bool:
        """Whether a version was downloaded on this day or later; True also if that is unknown."""
        if self.since is None or self.since >= first_day:
            return True
        return self.last_days.get(uid, date.min) >= first_day
