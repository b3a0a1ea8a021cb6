"""Opens and keeps connections to a service."""

from aiohttp import BaseConnector, TCPConnector, UnixConnector

from common.http.aiohttp_private import ConnectTimeoutMixin

KEEP_ALIVE = 1.0  # seconds that an idle connection is reused; a stopping service keeps it for longer


class _TCPConnector(ConnectTimeoutMixin, TCPConnector):
    pass


class _UnixConnector(ConnectTimeoutMixin, UnixConnector):
    pass


def base_url(address: str) -> str:
    """The start of the URLs of a service at `http://host:port` or `unix:/path/of/the.sock`."""
    return "http://localhost" if address.startswith("unix:") else address.rstrip("/")


def connector(address: str, limit: int) -> BaseConnector:
    """At most `limit` connections to `http://host:port` or `unix:/path/of/the.sock`."""
    if address.startswith("unix:"):
        return _UnixConnector(address.removeprefix("unix:"), limit=limit, keepalive_timeout=KEEP_ALIVE)
    return _TCPConnector(limit=limit, keepalive_timeout=KEEP_ALIVE)
