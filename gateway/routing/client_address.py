"""The client's network address, and the base URL that it used. Forwarding headers count from trusted proxies only."""

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from common.auth.internal_tokens import Deployment
from common.errors import InvalidRequest
from common.tenants import Address, Network, plain_address
from gateway.settings import GatewaySettings

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
LOOPBACK = ip_address("127.0.0.1")


def caller_address(request: web.Request, trusted: tuple[Network, ...]) -> Address:
    """The socket's address; behind a trusted proxy, the right-most `X-Forwarded-For` hop that is no trusted proxy."""
    address = _socket_address(request)
    if not _is_trusted(address, trusted):
        return address
    hops = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")
    for hop in reversed(hops):
        try:
            address = plain_address(ip_address(hop.strip()))
        except ValueError:
            return address  # No proxy wrote this hop, so the chain ends.
        if not _is_trusted(address, trusted):
            return address
    return address


def base_url(request: web.Request, settings: GatewaySettings, tenant_id: str) -> str:
    """The base URL of this tenant's operations, such as `https://packages.example.com/acme`. Raises InvalidRequest."""
    prefix = "client/api" if settings.deployment is Deployment.SINGLE else tenant_id
    return f"{settings.public_url or _own_origin(request, settings)}/{prefix}"


def is_same_origin(request: web.Request, base: str) -> bool:
    """Whether the browser sent the request from one of our pages, or from no page.

    Browsers send Sec-Fetch-Site over TLS only, and Origin over plain HTTP, too. The request's own host is ours even if
    `base` differs: a proxy that ends TLS changes the scheme, and `PUBLIC_URL` may name another host.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site in {"same-origin", "none"}
    host = None if origin is None else origin.partition("://")[2]  # "" for the origin `null`
    return host is None or (host != "" and host in {request.headers.get("Host"), urlsplit(base).netloc})


def is_https(base: str) -> bool:
    return urlsplit(base).scheme == "https"


def _own_origin(request: web.Request, settings: GatewaySettings) -> str:
    scheme, host = request.scheme, request.headers.get("Host", "")
    if settings.trusted_proxies and _is_trusted(_socket_address(request), settings.trusted_proxies):
        scheme = request.headers.get("X-Forwarded-Proto", scheme)
        host = request.headers.get("X-Forwarded-Host", host)
    return _origin(scheme, host)


@lru_cache(maxsize=4096)
def _origin(scheme: str, host: str) -> str:
    try:
        is_host = _HOST.fullmatch(host) is not None and urlsplit(f"//{host}").port != 0
    except ValueError:  # The brackets hold no IPv6 address, or the port is above 65535.
        is_host = False
    if scheme not in {"http", "https"} or not is_host:
        raise InvalidRequest("The Host header is not a host name.")
    return f"{scheme}://{host}"


def _socket_address(request: web.Request) -> Address:
    # A unix socket has no address; its client is on this machine.
    return _parse_address(request.remote) if request.remote else LOOPBACK


@lru_cache(maxsize=4096)
def _parse_address(text: str) -> Address:
    return plain_address(ip_address(text.partition("%")[0]))


def _is_trusted(address: Address, trusted: tuple[Network, ...]) -> bool:
    return bool(trusted) and any(address in network for network in trusted)
