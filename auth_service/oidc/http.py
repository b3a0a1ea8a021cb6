"""Requests to identity providers. What holds for each:

- It takes at most 5 seconds, reads at most 64 KiB, and follows no redirect.
- It uses HTTPS, and trusts the system's authorities or the one that the operator gave.
- It connects to public addresses, or to those that the operator allowed, checked after the name was resolved.
"""

import ssl
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from auth_service.oidc.model import Provider, ProviderUnavailable
from common.tenants import Address, contains, plain_address

TIMEOUT = aiohttp.ClientTimeout(total=5)
SIZE_LIMIT = 64 << 10  # bytes
GLOBAL_IPV6 = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")  # Networks with IPv6 only reach IPv4 addresses by it.
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}  # A compressed answer could be a bomb.


async def get_json(provider: Provider, url: str) -> dict[str, Any]:
    """The JSON object at an address. Raises ProviderUnavailable."""
    return (await _request(provider, "GET", url))[1]


async def post_form(
    provider: Provider, url: str, form: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[int, dict[str, Any]]:
    """The status and the JSON object that answer a form. Raises ProviderUnavailable."""
    return await _request(provider, "POST", url, data=form, headers=headers)


async def _request(provider: Provider, method: str, url: str, **request: Any) -> tuple[int, dict[str, Any]]:
    try:
        address = URL(url)
        _check_address(address, provider.allowed_networks)
        resolver = _CheckedResolver(provider.allowed_networks)
        context = trusted(provider.ca_certificate)
        async with (
            aiohttp.TCPConnector(resolver=resolver, ssl=context, use_dns_cache=False) as connector,
            aiohttp.ClientSession(
                connector=connector, timeout=TIMEOUT, headers=HEADERS, auto_decompress=False
            ) as session,
            session.request(method, address, allow_redirects=False, **request) as response,
        ):
            body = await _read(response)
            status = response.status
    except TimeoutError:
        raise ProviderUnavailable(problem="it did not answer within 5 seconds", reason="provider_timeout") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        problem = f"the connection to it failed ({type(error).__name__})"
        raise ProviderUnavailable(problem=problem, reason="provider_connection") from None
    if status >= 500 or 300 <= status < 400 or (method == "GET" and status != 200):
        raise bad_answer(f"it answered with status {status}")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise bad_answer("its answer is not a JSON object")
    return status, document


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for block in response.content.iter_any():
        body += block
        if len(body) > SIZE_LIMIT:
            raise bad_answer("its answer is larger than 64 KiB")
    return bytes(body)


def bad_answer(problem: str) -> ProviderUnavailable:
    """The error of an answer that no provider may give."""
    return ProviderUnavailable(problem=problem, reason="provider_answer")


@lru_cache(maxsize=64)
def trusted(ca_certificate: str) -> ssl.SSLContext:
    """The context that trusts a certificate, or the system's authorities. Raises ssl.SSLError or ValueError."""
    return ssl.create_default_context(cadata=ca_certificate or None)


class _CheckedResolver(AbstractResolver):
    """Resolves names to addresses that may be connected to."""

    def __init__(self, allowed_networks: tuple[str, ...]) -> None:
        self._resolver = ThreadedResolver()
        self._allowed_networks = allowed_networks

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        allowed = [result for result in results if _is_allowed(result["host"], self._allowed_networks)]
        if not allowed:
            raise _private()
        return allowed

    async def close(self) -> None:
        await self._resolver.close()


def _check_address(address: URL, allowed_networks: tuple[str, ...]) -> None:
    """Raise ProviderUnavailable for a scheme or a literal address; names are checked when they are resolved."""
    if address.scheme != "https" or not address.host:
        raise bad_answer("its address does not begin with https://")
    try:
        ip_address(address.host)
    except ValueError:
        return
    if not _is_allowed(address.host, allowed_networks):
        raise _private()


def _is_allowed(address: str, allowed_networks: tuple[str, ...]) -> bool:
    plain = plain_address(ip_address(address.partition("%")[0]))
    return _is_public(plain) or contains(allowed_networks, plain)


def _is_public(address: Address) -> bool:
    """Whether an address is public. IPv6 addresses that a router turns into private IPv4 addresses are not."""
    if address.version == 6:
        if address in NAT64:
            return _is_public(IPv4Address(address.packed[-4:]))
        if address not in GLOBAL_IPV6 or address.sixtofour:
            return False
    return address.is_global and not address.is_multicast


def _private() -> ProviderUnavailable:
    problem = "its address is private, and --allow-network does not contain it"
    return ProviderUnavailable(problem=problem, reason="provider_private")
