"""The replicas of a service, found by its name, and the order in which each key prefers them."""

import asyncio
import time
from hashlib import blake2b
from ipaddress import ip_address
from socket import SOCK_STREAM

from aiohttp import BaseConnector
from yarl import URL

from common.service_client.body_transport import BodyTransport
from common.service_client.connections import base_url
from common.telemetry import log

LOOKUP_INTERVAL = 2.0  # seconds
LOOKUP_TIMEOUT = 1.0  # seconds; after that, the known addresses are used
AVOIDED = 10.0  # seconds in which a replica that did not answer comes after all others


class Replicas:
    """One transport for each address of the service's name.

    A unix socket, an IP address or a name without addresses is one replica. So is https: a certificate has the name.
    """

    def __init__(self, connector: BaseConnector, address: str) -> None:
        self._connector = connector
        self._url = URL(base_url(address))
        self._has_name = address.startswith("http:") and not _is_ip(self._url.raw_host or "")
        self._transports = {"": BodyTransport(connector, str(self._url))}
        self._looked_up = -LOOKUP_INTERVAL
        self._avoided: dict[BodyTransport, float] = {}  # and until when

    async def ordered(self, key: str) -> list[BodyTransport]:
        """All replicas, the one for `key` first (rendezvous hashing): the loss of one moves only its own keys."""
        if self._has_name and time.monotonic() - self._looked_up >= LOOKUP_INTERVAL:
            self._looked_up = time.monotonic()  # Concurrent requests use the known addresses.
            await self._look_up()
        if len(self._transports) == 1:
            return [*self._transports.values()]
        addresses = sorted(self._transports, key=lambda address: _score(key, address))
        return sorted((self._transports[address] for address in addresses), key=self._is_avoided)

    def avoid(self, transport: BodyTransport) -> None:
        """Put a replica that did not answer after the others for a while."""
        self._avoided[transport] = time.monotonic() + AVOIDED

    def _is_avoided(self, transport: BodyTransport) -> bool:
        return self._avoided.get(transport, 0) > time.monotonic()

    async def _look_up(self) -> None:
        url = self._url
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT):
                found = await asyncio.get_running_loop().getaddrinfo(url.raw_host, url.port, type=SOCK_STREAM)
            if not found:
                raise OSError("no address")
        except OSError as error:
            log.warning("replicas_not_found", host=url.raw_host, error=str(error))
            return
        addresses = {str(address[0]) for *_, address in found}
        known = self._transports
        self._transports = {address: known.get(address) or self._open(address) for address in sorted(addresses)}
        self._avoided = {each: until for each, until in self._avoided.items() if self._is_avoided(each)}

    def _open(self, address: str) -> BodyTransport:
        return BodyTransport(self._connector, str(self._url.with_host(address)), self._url.raw_authority)


def _score(key: str, address: str) -> bytes:
    return blake2b(f"{key} {address}".encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
