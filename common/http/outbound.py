"""Connections to addresses that others name: only to public ones, and to networks that an operator allows.

A name is resolved once for each connection. All its addresses are checked, and the connection uses one of them.
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult
from yarl import URL

from common.errors import Problem
from common.tenants import contains, is_public


class AddressForbidden(Problem):
    """An address is not allowed; the text is for the person who named it."""

    status = 403
    code = "address_forbidden"


def parse_https(text: str, allowed_networks: tuple[str, ...]) -> URL:
    """Parse an https address without credentials; names are checked when they are resolved.

    Raises AddressForbidden.
    """
    try:
        url = URL(text)
    except ValueError:
        raise AddressForbidden(f"{text} is no address.") from None
    if url.scheme != "https" or not url.host:
        raise AddressForbidden(f"{text} does not begin with https://.")
    if url.raw_user is not None or url.raw_password is not None:
        raise AddressForbidden("The address holds credentials.")
    with suppress(ValueError):
        _check(url.host, [str(ip_address(url.host))], allowed_networks)
    return url


class CheckedResolver(ThreadedResolver):
    """Resolves names to checked addresses."""

    def __init__(self, allowed_networks: tuple[str, ...]) -> None:
        super().__init__()
        self._allowed_networks = allowed_networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressForbidden, and OSError for a name without an address."""
        results = await super().resolve(host, port, family)
        _check(host, [result["host"] for result in results], self._allowed_networks)
        return results


def _check(host: str, addresses: Sequence[str], allowed_networks: tuple[str, ...]) -> None:
    """Raise AddressForbidden unless every address of a host is allowed."""
    for text in addresses:
        address = ip_address(text.partition("%")[0])
        if not is_public(address) and not contains(allowed_networks, address):
            raise AddressForbidden(f"{host} is at {text}, which is no public address; see --allow-network.")
