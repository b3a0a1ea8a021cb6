"""The addresses of external installers, which clients download from their publishers.

The server never requests such an address, because an administrator could use that to reach internal machines. Clients
check the SHA-256 of the download. Addresses of the client itself and IP addresses that are not public are refused. Host
names of private networks are allowed for a company's own servers; names are not resolved here.
"""

import re
from ipaddress import IPv4Address, IPv6Address

from common.errors import InvalidField
from common.tenants import is_public

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
