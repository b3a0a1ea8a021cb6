"""Installers that stay where their makers have them: addresses that are kept as they are, and given to clients.

No part of the product ever asks for one, neither when it is kept nor later: whoever may add versions could otherwise
have us ask our own machines for something. Only clients fetch it, and hold it against its SHA-256. What is refused here
is what would send *them* astray: to themselves, or to a number in a network that is not public. A name may lead into
such a network, for a company's own servers are there; and what a name leads to is for each client to find out, for it
differs from what we are told, and is something else tomorrow.
"""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import NewType

from common.errors import InvalidField

ExternalAddress = NewType("ExternalAddress", str)

LIMIT = 2048  # characters, as in winget's manifests
MAX_NAME = 253  # characters of a host
MAX_PORT = 65535

# Whatever an address may hold besides is percent-encoded in it, for programs differ in what they make of that.
_ADDRESS = re.compile(
    r"(?i:https)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?"
    r"(?:[/?](?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # A host that ends in one is an IPv4 address, in whatever spelling.
_OWN = {"localhost", "localdomain", "local"}  # the client itself, or whoever in its network answers first
_TRANSLATED = IPv6Network("64:ff9b::/96")  # NAT64: ends with the IPv4 address that is meant


def parse_address(text: str, field: str = "installer_url") -> ExternalAddress:
    """An address that clients may be sent to. Raises InvalidField, which tells nothing of what the address holds."""
    try:
        _check(text)
    except ValueError as reason:
        raise InvalidField(field, str(reason)) from None
    return ExternalAddress(text)


def _check(text: str) -> None:
    """Raise ValueError with what there is against an address."""
    if len(text) > LIMIT:
        raise ValueError(f"is longer than {LIMIT} characters")
    scheme, _, rest = text.partition("://")
    if scheme.lower() != "https":
        raise ValueError("must begin with https://")
    if "@" in re.split(r"[/?#\\]", rest, maxsplit=1)[0]:
        raise ValueError("must not hold the name or the password of a user")
    if "#" in rest:
        raise ValueError("must not have a fragment")
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError("must be a host and a path, all else percent-encoded, and names of other scripts as xn--")
    host, port = found.groups()
    if port and not 1 <= int(port) <= MAX_PORT:
        raise ValueError(f"must have a port from 1 to {MAX_PORT}, or none")
    _check_host(host.lower())


def _check_host(host: str) -> None:
    """The same of a host: it is a name, or a public address in its usual spelling."""
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


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one that anybody may reach; one that holds another is as public as that."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _TRANSLATED:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)
