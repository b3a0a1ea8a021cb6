"""Connections to a service, kept for a moment between two questions."""

from typing import Any

from aiohttp import BaseConnector, TCPConnector, UnixConnector
from aiohttp.client_proto import ResponseHandler

from common.concurrency.limits import loop_timeout

CONNECT_TIMEOUT = 3.0  # seconds for a connection, whatever is to be asked on it
IDLE = 1.0  # seconds after which a connection is not used again; a service that stops keeps it for longer


def base_url(address: str) -> str:
    """What the addresses of a service's operations begin with."""
    return "http://localhost" if address.startswith("unix:") else address.rstrip("/")


def connections(address: str, most: int) -> BaseConnector:
    """So many connections to `http://host:port` or `unix:/path/of/the.sock`."""
    if address.startswith("unix:"):
        return _UnixConnector(address.removeprefix("unix:"), limit=most, keepalive_timeout=IDLE)
    return _TCPConnector(limit=most, keepalive_timeout=IDLE)


class _ConnectTimeoutMixin(BaseConnector):
    """Gives up a connection that is not there soon, in ticks of our own loop; by the clock it may be late itself."""

    async def _create_connection(self, *given: Any, **options: Any) -> ResponseHandler:
        async with loop_timeout(CONNECT_TIMEOUT):
            return await super()._create_connection(*given, **options)


class _TCPConnector(_ConnectTimeoutMixin, TCPConnector):
    pass


class _UnixConnector(_ConnectTimeoutMixin, UnixConnector):
    pass
