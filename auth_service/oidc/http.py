"""Requests to identity providers. What holds for each:

- It takes at most 5 seconds, reads at most 64 KiB, and follows no redirect.
- It uses HTTPS, and trusts the system's authorities or the one that the operator gave.
- It connects to public addresses, or to those that the operator allowed, checked after the name was resolved.
"""

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import aiohttp
import orjson

from auth_service.oidc.model import Provider, ProviderUnavailable
from common.http.outbound import AddressForbidden, CheckedResolver, parse_https

TIMEOUT = aiohttp.ClientTimeout(total=5)
SIZE_LIMIT = 64 << 10  # bytes
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
        address, resolver = parse_https(url, provider.allowed_networks), CheckedResolver(provider.allowed_networks)
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
    except AddressForbidden:
        problem = "its address is private, and --allow-network does not contain it"
        raise ProviderUnavailable(problem=problem, reason="provider_private") from None
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
