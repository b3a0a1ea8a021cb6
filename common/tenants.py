"""The tenant as every service sees it: its id, its limits and who may call."""

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
    summarize_address_range,
)

from common.errors import InvalidField

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

RESERVED = frozenset(["client", "ui", "internal", "metrics", "livez", "readyz", "docs", "static", "dashboard"])
_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class VersionKey(StrEnum):
    """What is unique within a package: the version string (section 9), or one installer of it."""

    VERSION = "version"
    INSTALLER = "installer"


@dataclass(frozen=True)
class Tenant:
    """A tenant and its settings. Sizes are bytes; `None` is no limit; no allowed network allows every address."""

    tenant_id: str
    client_authentication: bool = False
    allowed_networks: tuple[str, ...] = ()
    storage_quota: int | None = None
    max_clients: int | None = None
    version_key: VersionKey = VersionKey.VERSION

    def allows(self, address: Address) -> bool:
        """Whether a caller from this address is let in (section 5.2)."""
        return not self.allowed_networks or contains(self.allowed_networks, address)


def is_tenant_id(text: str) -> bool:
    """Whether a tenant may have this id: lower-case letters, digits, `_` and `-`, at most 63, and not reserved."""
    return _TENANT_ID.fullmatch(text) is not None and text not in RESERVED


def parse_network(field: str, text: str) -> str:
    """Read an address, a CIDR network or an `a-b` range, and give its canonical spelling.

    Raises:
        InvalidField: it is none of the three.
    """
    try:
        networks(text)
    except (ValueError, TypeError):
        raise InvalidField(field, f"{text!r} is not an IP address, a network (a/n) or a range (a-b)") from None
    return text.replace(" ", "")


def networks(text: str) -> tuple[Network, ...]:
    """The networks that an address, a CIDR network or an `a-b` range covers. Raises ValueError or TypeError."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not dash:
        return (ip_network(first, strict=False),)
    return tuple(summarize_address_range(ip_address(first), ip_address(last)))


def contains(listed: tuple[str, ...], address: Address) -> bool:
    """Whether one of these networks or ranges holds the address; an IPv4 address mapped into IPv6 counts as IPv4."""
    plain = getattr(address, "ipv4_mapped", None) or address
    return any(plain in network for text in listed for network in networks(text))
