"""Checks the IP addresses of downloads: only public ones, so that no manifest reaches internal machines."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult

from catalog_service.model.external_installers import is_public
from common.errors import Problem

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressForbidden(Problem):
    """An installer's address is not allowed."""

    status = 403
    code = "address_forbidden"


class Networks:
    """The public addresses, and those of `allowed` networks."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed

    def check(self, host: str, addresses: Sequence[str]) -> None:
        """Raise AddressForbidden unless every address of a host is allowed."""
        for text in addresses:
            if not self._allows(ip_address(text.partition("%")[0])):
                raise AddressForbidden(f"{host} is at {text}, which is no public address; see --allow-network.")

    def _allows(self, address: Address) -> bool:
        return any(address in network for network in self._allowed) or is_public(address)


class CheckedResolver(AbstractResolver):
    """Resolves names to checked addresses, to which the connection is made without another query."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressForbidden, and OSError for a name without an address."""
        loop = asyncio.get_running_loop()
        results = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        addresses = [str(address[4][0]) for address in results]
        self._networks.check(host, addresses)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST)
            for address, (kind, _, proto, _, _) in zip(addresses, results, strict=True)
        ]

    async def close(self) -> None:
        """There is nothing to close."""
