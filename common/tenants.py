"""The tenant as every service sees it: its id, limits, networks that may call, app of Entra ID, sites and rings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Self
from uuid import UUID

from common.errors import InvalidField

MAX_DIRECTORIES = 20
MAX_RINGS = 100
MAX_SITES = 100
MAX_SITE_NETWORKS = 100  # of one site
SITE_LIMIT = 64  # characters of a site's name
VALUE_LIMIT = 128  # characters of an app role, or of a group's id
_RESOURCE = re.compile(r"(?:api|https)://[!-~]{1,250}")
_SCOPE = re.compile(r"[A-Za-z0-9._-]{1,120}")
_RING = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class EntraApp:
    """The app of Microsoft Entra ID whose access tokens a tenant accepts from winget, as the operator set it.

    `directories` are the ids of the organizations whose users may sign in. `resource` is the app's Application ID URI,
    which version 1 tokens name; version 2 tokens name `client_id`. `rings` has pairs of an app role or group id, and
    the client group (ring) of its users.
    """

    directories: tuple[str, ...]
    client_id: str
    resource: str
    scope: str
    rings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(
        cls,
        directories: Iterable[str],
        client_id: str,
        resource: str,
        scope: str,
        rings: Iterable[tuple[str, str]] = (),
    ) -> Self:
        """Check each value. Raises InvalidField."""
        ids = tuple(dict.fromkeys(_guid("directory", text) for text in directories))
        pairs = tuple(dict.fromkeys((value.strip(), ring.strip()) for value, ring in rings))
        checks = {
            "directory": (0 < len(ids) <= MAX_DIRECTORIES, f"must be given 1 to {MAX_DIRECTORIES} times"),
            "resource": (_RESOURCE.fullmatch(resource), "must be an Application ID URI, such as api://…"),
            "scope": (_SCOPE.fullmatch(scope), "must be the name of a scope, such as access"),
            "map": (
                len(pairs) <= MAX_RINGS
                and all(0 < len(value) <= VALUE_LIMIT and _RING.fullmatch(ring) for value, ring in pairs),
                f"must be an app role or group id, `=`, and a ring of letters and digits; at most {MAX_RINGS}",
            ),
        }
        for name, (is_valid, message) in checks.items():
            if not is_valid:
                raise InvalidField(name, message)
        return cls(ids, _guid("client_id", client_id), resource, scope, pairs)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the app from the database or from another service. Raises KeyError, TypeError or InvalidField."""
        return cls.parse(
            document["directories"],
            document["client_id"],
            document["resource"],
            document["scope"],
            [(value, ring) for value, ring in document["rings"]],
        )


def _guid(field: str, text: str) -> str:
    try:
        return str(UUID(text))
    except (ValueError, AttributeError):
        raise InvalidField(field, "must be a GUID, such as 3f2504e0-4f89-11d3-9a0c-0305e82c3301") from None


@dataclass(frozen=True)
class Site:
    """A site of a tenant. Machines in its `networks` download installers at `downloads`, such as `https://graz.example.com`."""

    name: str
    networks: tuple[str, ...]
    downloads: str

    @classmethod
    def parse(cls, name: str, networks: Iterable[str], downloads: str) -> Self:
        """Check each value. Raises InvalidField."""
        if not 0 < len(name) <= SITE_LIMIT:
            raise InvalidField("sites", f"must have names of 1 to {SITE_LIMIT} characters", reason="site_name")
        ranges = tuple(dict.fromkeys(parse_network("sites", text) for text in networks))
        if not 0 < len(ranges) <= MAX_SITE_NETWORKS:
            message = f"must have 1 to {MAX_SITE_NETWORKS} networks for each site"
            raise InvalidField("sites", message, reason="site_networks", site=name)
        if not _ORIGIN.fullmatch(downloads):
            message = f"must have an address without a path, such as https://graz.example.com, not {downloads!r}"
            raise InvalidField("sites", message, reason="site_downloads", site=name)
        return cls(name, ranges, downloads)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read a site that was checked before. Raises KeyError or TypeError."""
        return cls(document["name"], tuple(document["networks"]), document["downloads"])


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ALL_RINGS = "*"  # in place of a ring: every ring
RING_LIMIT = 32  # characters
DEFAULT_RING = "everyone"  # of a tenant that sets gates and no rings

ALL_TENANTS = "internal"  # in calls between services about all tenants; no tenant can have this id
RESERVED = frozenset(["client", "ui", "internal", "metrics", "livez", "readyz", "docs", "static", "dashboard"])
NAT64 = IPv6Network("64:ff9b::/96")  # Networks with IPv6 only reach IPv4 addresses by it.
MAPPED_PREFIX = 96  # bits before the IPv4 address in ::ffff:a.b.c.d
_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class VersionKey(StrEnum):
    """The unit that is unique within a package: the version string, or one installer of it."""

    VERSION = "version"
    INSTALLER = "installer"


@dataclass(frozen=True)
class Tenant:
    """A tenant and its settings. Sizes are bytes; `None` is no limit; no allowed network allows every address.

    With `strict_installers` a version whose fields contradict its installer is refused. With `source_address`, clients
    may use a personal address of the source, which has their token.
    `source_agreements` is the text that winget users must accept first: a JSON list of objects with one or more of
    `label`, `text` and `url`; "" is none. `login_name` is the name of the company login; "" is none. Without
    `password_login`, only break-glass users sign in with a password. `entra` is the app with which winget
    signs in users, if any. The first of the `sites` that has a caller's network counts. catalog_service has the
    tenant's policy for releases.
    """

    tenant_id: str
    client_authentication: bool = False
    allowed_networks: tuple[str, ...] = ()
    storage_quota: int | None = None
    max_clients: int | None = None
    version_key: VersionKey = VersionKey.VERSION
    strict_installers: bool = False
    source_address: bool = True
    source_agreements: str = ""
    login_name: str = ""
    password_login: bool = True
    entra: EntraApp | None = None
    sites: tuple[Site, ...] = field(default=(), hash=False)  # Callers are hashed with their tenant for each request.

    def allows(self, address: Address) -> bool:
        """Whether callers from this address are allowed."""
        return not self.allowed_networks or contains(self.allowed_networks, address)

    def site_url(self, address: Address) -> str:
        """The address at which a caller from here downloads installers; "" without a site."""
        return self._sites.find(address) if self.sites else ""

    @cached_property
    def _sites(self) -> "NetworkTable":
        return NetworkTable((network, site.downloads) for site in self.sites for network in site.networks)

    def to_document(self) -> dict[str, Any]:
        """All fields, as values that JSON and BSON have."""
        return {**asdict(self), "allowed_networks": list(self.allowed_networks)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read a tenant from the database or from another service. Raises KeyError or ValueError."""
        return cls(
            tenant_id=document["tenant_id"],
            client_authentication=document["client_authentication"],
            allowed_networks=tuple(document["allowed_networks"]),
            storage_quota=document["storage_quota"],
            max_clients=document["max_clients"],
            version_key=VersionKey(document["version_key"]),
            strict_installers=document.get("strict_installers", False),  # An internal token lacks some of these.
            source_address=document.get("source_address", True),
            source_agreements=document.get("source_agreements", ""),
            login_name=document.get("login_name", ""),
            password_login=document.get("password_login", True),
            entra=EntraApp.from_document(app) if (app := document.get("entra")) is not None else None,
            sites=tuple(map(Site.from_document, document.get("sites", ()))),
        )


def is_tenant_id(text: str) -> bool:
    """Whether a tenant may have this id: lower-case letters, digits, `_` and `-`, at most 63, and not reserved."""
    return _TENANT_ID.fullmatch(text) is not None and text not in RESERVED


def parse_network(field: str, text: str) -> str:
    """Return the canonical spelling of an address, a CIDR network or an `a-b` range. Raises InvalidField."""
    try:
        first, last = bounds(text)
    except (ValueError, TypeError):
        message = f"{text!r} is not an IP address, a network (a/n) or a range (a-b)"
        raise InvalidField(field, message, reason="not_a_network", network=text) from None
    if first == last and "-" not in text:
        return str(first)
    return f"{first}-{last}" if "-" in text else str(_network(text))


@lru_cache(maxsize=16384)
def bounds(text: str) -> tuple[Address, Address]:
    """The first and the last address of an address, a network or an `a-b` range. Raises ValueError or TypeError."""
    if "%" in text:
        raise ValueError("The zone of an address means nothing on another machine.")
    first, dash, last = text.partition("-")
    if not dash:
        network = _network(text)
        return network.network_address, network.broadcast_address
    least, most = plain_address(ip_address(first.strip())), plain_address(ip_address(last.strip()))
    if least.version != most.version or int(least) > int(most):
        raise ValueError("The range ends before it begins.")
    return least, most


def _network(text: str) -> Network:
    network = ip_network(text.strip(), strict=False)
    plain = plain_address(network.network_address)
    if plain.version == network.version or network.prefixlen < MAPPED_PREFIX:
        return network
    return ip_network(f"{plain}/{network.prefixlen - MAPPED_PREFIX}")


def contains(listed: tuple[str, ...], address: Address) -> bool:
    """Whether one of these networks or ranges contains the address. IPv4 mapped into IPv6 counts as IPv4."""
    plain = plain_address(address)
    ranges = map(bounds, listed)
    return any(first.version == plain.version and int(first) <= int(plain) <= int(last) for first, last in ranges)


def plain_address(address: Address) -> Address:
    """The IPv4 address of an IPv4 address that is mapped into IPv6; any other address as it is."""
    return getattr(address, "ipv4_mapped", None) or address


def is_public(address: Address) -> bool:
    """Whether an address is public. An address that embeds another is as public as that."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = IPv4Address(address.packed[-4:])
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def network_of(ip: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address: one host may use all addresses of a /64."""
    return ip if ip_address(ip).version == 4 else str(IPv6Network((ip, 64), strict=False))


class NetworkTable:
    """Texts by networks, in order."""

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        """Each row is an address, network or range, and its text. Raises ValueError or TypeError."""
        # Version of IP, first and last address as numbers, and the text.
        self._ranges = tuple(
            (first.version, int(first), int(last), text) for network, text in rows for first, last in [bounds(network)]
        )

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def find(self, address: Address) -> str:
        """The text of the first row with this address; "" without one."""
        plain = plain_address(address)
        number, version = int(plain), plain.version
        ranges = self._ranges
        return next((text for its, first, last, text in ranges if its == version and first <= number <= last), "")


class RingRules:
    """A tenant's rings in order, and the rules that choose one by the network of a client."""

    def __init__(self, rings: Sequence[str], rules: Sequence[Mapping[str, str]]) -> None:
        self.rings = tuple(rings)
        self._by_network = NetworkTable((rule["network"], rule["ring"]) for rule in rules if "network" in rule)

    @property
    def has_networks(self) -> bool:
        """Whether the address of a client can choose its ring."""
        return bool(self._by_network)

    def ring_of(self, address: Address | None, chosen: str = "") -> str:
        """The ring of an identified client; "" for the last one, which has all clients without another ring.

        `chosen` is the ring that the client or its app roles have, else the first rule with the client's network
        decides. A ring that the tenant does not have counts as the last one.
        """
        earlier = self.rings[:-1]
        if not earlier:
            return ""
        ring = chosen or (self._by_network.find(address) if address else "")
        return ring if ring in earlier else ""


def unknown_ring(field: str, rings: Sequence[str]) -> InvalidField:
    """The error of a field that names a ring which the tenant does not have."""
    if not rings:
        return InvalidField(field, "is not for a tenant without rings", reason="no_rings")
    names = ", ".join(rings)
    return InvalidField(field, f"must be one of the rings: {names}", reason="no_such_ring", rings=names)
