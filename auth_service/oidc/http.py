"""Requests to identity providers. What holds for each:

- It takes at most 5 seconds, reads at most 64 KiB, and follows no redirect.
- It uses HTTPS, and trusts the system's authorities or the one that the operator gave.
- It connects to public addresses, or to those that the operator allowed, checked after the name was resolved.
"""

import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from auth_service.oidc.model import Provider, ProviderUnavailable
from common.tenants import contains, plain_address

TIMEOUT = aiohttp.ClientTimeout(total=5)
SIZE_LIMIT = 64 << 10  # bytes
HEADERS = {"Accept": "application/json"}


async def get_json(provider: Provider, url: str) -> dict[str, Any]:
    """The JSON object at an address. Raises ProviderUnavailable."""
    return (await _request(provider, "GET", url))[1]


async def post_form(
    provider: Provider, url: str, form: Mapping[str, str], auth: aiohttp.BasicAuth | None
) -> tuple[int, dict[str, Any]]:
    """The status and the JSON object that answer a form. Raises ProviderUnavailable."""
    return await _request(provider, "POST", url, data=form, auth=auth)


async def _request(provider: Provider, method: str, url: str, **request: Any) -> tuple[int, dict[str, Any]]:
    address = URL(url)
    if address.scheme != "https" or not address.host:
        raise ProviderUnavailable(problem="its address does not begin with https://")
    context = ssl.create_default_context(cadata=provider.ca_certificate or None)
    resolver = _CheckedResolver(provider.allowed_networks)
    connector = aiohttp.TCPConnector(resolver=resolver, ssl=context, use_dns_cache=False)
    try:
        _check_literal(address.host, provider.allowed_networks)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, headers=HEADERS) as session,
            session.request(method, address, allow_redirects=False, **request) as response,
        ):
            body = bytearray()
            async for block in response.content.iter_chunked(SIZE_LIMIT):
                body += block
                if len(body) > SIZE_LIMIT:
                    raise ProviderUnavailable(problem="its answer is too large")
            if response.status >= 500 or 300 <= response.status < 400 or (method == "GET" and response.status != 200):
                raise ProviderUnavailable(problem=f"it answered with status {response.status}")
            document = orjson.loads(body)
    except TimeoutError:
        raise ProviderUnavailable(problem="it did not answer within 5 seconds") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ProviderUnavailable(problem=f"the connection failed ({type(error).__name__})") from None
    except orjson.JSONDecodeError:
        raise ProviderUnavailable(problem="its answer is not JSON") from None
    if not isinstance(document, dict):
        raise ProviderUnavailable(problem="its answer is not a JSON object")
    return response.status, document


class _CheckedResolver(AbstractResolver):
    """Resolves names to addresses that may be connected to."""

    def __init__(self, allowed_networks: tuple[str, ...]) -> None:
        self._resolver = ThreadedResolver()
        self._allowed_networks = allowed_networks

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        results = await self._resolver.resolve(host, port, family)
        allowed = [result for result in results if _is_allowed(result["host"], self._allowed_networks)]
        if not allowed:
            raise ProviderUnavailable(problem="its address is private; the operator must allow its network")
        return allowed

    async def close(self) -> None:
        await self._resolver.close()


def _check_literal(host: str, allowed_networks: tuple[str, ...]) -> None:
    """Check a host that is an address: names are checked when they are resolved."""
    try:
        ip_address(host)
    except ValueError:
        return
    if not _is_allowed(host, allowed_networks):
        raise ProviderUnavailable(problem="its address is private; the operator must allow its network")


def _is_allowed(address: str, allowed_networks: tuple[str, ...]) -> bool:
    plain = plain_address(ip_address(address.partition("%")[0]))
    return (plain.is_global and not plain.is_multicast) or contains(allowed_networks, plain)
