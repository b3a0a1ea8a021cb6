"""Releases of the client program, and their errors."""

from dataclasses import dataclass
from datetime import datetime

from common.errors import Conflict


@dataclass(frozen=True)
class Installer:
    """The file of a release. `size` is in bytes, `sha256` hexadecimal."""

    server_filename: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Release:
    """A published version of the client program, four numeric parts."""

    uid: str
    version: str
    published_at: datetime
    installer: Installer | None = None


class ReleaseExists(Conflict):
    code = "release_exists"
    text = "Version {version} of the client was published already."
