"""Installer files as upload_service knows them, and the addresses of external installers.

The server never requests an external address, because an administrator could use that to reach internal machines.
Clients download from it, and check the SHA-256. Addresses of the client itself and IP addresses that are not public are
refused. Host names of private networks are allowed for a company's own servers; names are not resolved here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from ipaddress import IPv4Address, IPv6Address

from common.errors import InvalidField
from common.tenants import is_public


@dataclass(frozen=True)
class InstallerFile:
    """A file at upload_service: size in bytes, hexadecimal SHA-256 digest, and the identifiers found in it.

    With `is_withheld`, nobody can download it.
    """

    size: int
    sha256: str
    product_code: str = ""
    upgrade_code: str = ""
    package_family_name: str = ""
    signature_sha256: str = ""
    is_withheld: bool = False


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


LIMIT = 2048  # characters, as in winget's manifests
MAX_NAME = 253  # characters of a host
MAX_PORT = 65535

# All other characters must be percent-encoded, because programs interpret them differently.
_ADDRESS = re.compile(
    r"(?i:https)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?"
    r"(?:[/?](?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # A host that ends in one is an IPv4 address.
_OWN = {"localhost", "localdomain", "local"}  # the client itself, or any machine of its network


def parse_address(text: str, field: str = "installer_url") -> str:
    """Return a valid address. Raises InvalidField without the content of the address."""
    try:
        _check(text)
    except ValueError as reason:
        raise InvalidField(field, str(reason)) from None
    return text


def _check(text: str) -> None:
    """Raise ValueError with the reason to refuse an address."""
    if len(text) > LIMIT:
        raise ValueError(f"is longer than {LIMIT} characters")
    scheme, _, rest = text.partition("://")
    if scheme.lower() != "https":
        raise ValueError("must begin with https://")
    if "@" in re.split(r"[/?#\\]", rest, maxsplit=1)[0]:
        raise ValueError("must not hold the name or the password of a user")
    if "#" in rest:
        raise ValueError("must not have a fragment")
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError("must be a host and a path, all else percent-encoded, and names of other scripts as xn--")
    host, port = match.groups()
    if port and not 1 <= int(port) <= MAX_PORT:
        raise ValueError(f"must have a port from 1 to {MAX_PORT}, or none")
    _check_host(host.lower())


def _check_host(host: str) -> None:
    """Raise ValueError unless a host is a name or a public address in its usual spelling."""
    *_, last = labels = host.split(".")
    if host.startswith("[") or _NUMBER.fullmatch(last):
        try:
            address = IPv6Address(host[1:-1]) if host.startswith("[") else IPv4Address(host)
        except ValueError:
            raise ValueError("must have a name, or an IP address in its usual spelling, as its host") from None
        if not is_public(address):
            raise ValueError("has an IP address that is not public as its host; servers of your own go by their names")
    elif len(host) > MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError("has a host that is no name")
    elif last in _OWN:
        raise ValueError(f"has a host in {last}, which is another one for each client")
