"""Checks the IP addresses of downloads: only public ones, so that no manifest reaches internal machines."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult

from catalog_service.model.external_installers import is_public
from common.errors import Problem

Network = IPv4Network | IPv6Network


class AddressForbidden(Problem):
    """An installer's address is not allowed."""

    status = 403
    code = "address_forbidden"


@dataclass(frozen=True)
class Networks:
    """The public addresses, and those of `allowed` networks."""

    allowed: Sequence[Network]

    def check(self, host: str, addresses: Sequence[str]) -> None:
        """Raise AddressForbidden unless every address of a host is allowed."""
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if not is_public(address) and not any(address in network for network in self.allowed):
                raise AddressForbidden(f"{host} is at {text}, which is no public address; see --allow-network.")


class CheckedResolver(ThreadedResolver):
    """Resolves names to checked addresses, to which the connection is made without another query."""

    def __init__(self, networks: Networks) -> None:
        super().__init__()
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressForbidden, and OSError for a name without an address."""
        results = await super().resolve(host, port, family)
        self._networks.check(host, [result["host"] for result in results])
        return results
