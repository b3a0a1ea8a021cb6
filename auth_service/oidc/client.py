"""Identity providers: what they publish, and the tokens that they sign. What holds for each request to them:

- It takes at most 5 seconds, reads at most 64 KiB, and follows no redirect.
- It uses HTTPS, and trusts the system's authorities or the one that the operator gave.
- It connects to public addresses, or to those that the operator allowed, checked after the name was resolved.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import aiohttp
import jwt
import orjson

from auth_service.oidc.model import (
    ClocksDiffer,
    Metadata,
    Provider,
    ProviderUnavailable,
    RefusedByProvider,
    SecretRefused,
    TokenRefused,
)
from common.caching import FifoCache
from common.concurrency.limits import ConcurrencyLimit
from common.http.outbound import AddressForbidden, CheckedResolver, parse_https
from common.telemetry import log

TIMEOUT = aiohttp.ClientTimeout(total=5)
SIZE_LIMIT = 64 << 10  # bytes
CLOCK_SKEW = 60  # seconds that the clocks may differ
# A provider that hangs must not take the slots of sign-ins with a password.
CALLS, WAITING, WAIT_TIMEOUT = 4, 28, 2.0  # of one tenant; seconds
ERROR_LIMIT = 64  # characters of a provider's error code that are shown
KEY_TYPES = {"RS256": "RSA", "ES256": "EC"}  # by the algorithms that tokens may have
MAX_AGE = 3600.0  # seconds of metadata and keys
REFRESH_PAUSE = 60.0  # seconds between two reads because of an unknown `kid`, or of old keys
MAX_PROVIDERS = 10_000
_ADDRESS = re.compile(r"https://[!-~]{1,2000}")
UNKNOWN_CODE = "pkgrepo-checks-this-provider-and-its-own-client-secret"  # as long as the shortest `code_verifier`
SECRET_ERRORS = {"invalid_client", "unauthorized_client"}
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
        problem = "its address is private, and the operator of this server has not allowed its network"
        raise ProviderUnavailable(problem=problem, reason="provider_private") from None
    except TimeoutError:
        raise ProviderUnavailable(problem="it did not answer within 5 seconds", reason="provider_timeout") from None
    except aiohttp.ClientConnectorDNSError:
        raise ProviderUnavailable(problem="its name is unknown", reason="provider_name") from None
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        problem = f"its certificate is not trusted, or it does not speak TLS ({type(error).__name__})"
        raise ProviderUnavailable(problem=problem, reason="provider_certificate") from None
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


@dataclass(frozen=True)
class Published:
    """The public data of a provider: its metadata, and the keys of its signatures by `kid`."""

    metadata: Metadata
    keys: Mapping[str, Mapping[str, Any]]

    def key(self, kid: str, algorithm: str) -> Any:
        """The key for an algorithm of `KEY_TYPES`; None if the provider does not publish it."""
        key = dict(self.keys.get(kid, {}))
        if key.get("kty") == KEY_TYPES[algorithm] and key.get("alg", algorithm) == algorithm:
            with suppress(jwt.PyJWTError, ValueError, TypeError):
                return jwt.PyJWK.from_dict(key, algorithm).key
        return None


class _Entry:
    """The last data of a provider, and the running read. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self.published: Published | None = None
        self.read_at = self.tried_at = float("-inf")
        self.problem: ProviderUnavailable | None = None  # of the last read
        self.running: asyncio.Task[None] | None = None


class PublishedKeys:
    """Reads what providers publish, and keeps it for an hour. An unknown key is looked up once a minute."""

    def __init__(
        self,
        check: Callable[[Provider, Metadata], None],
        *,
        max_stale: float = MAX_AGE,
        retry_pause: float = 0.0,
        log_event: str = "",
    ) -> None:
        """`check` raises ProviderUnavailable for metadata that do not belong to a provider.

        `max_stale` is how many seconds known keys count while a provider does not answer. `retry_pause` is the least
        number of seconds after a failed read, while no key is known. A failed read is logged as `log_event`, if given.
        """
        self._check = check
        self._max_stale = max_stale
        self._retry_pause = retry_pause
        self._log_event = log_event
        self._entries: FifoCache[Provider, _Entry] = FifoCache(MAX_PROVIDERS)

    def known(self, provider: Provider, kid: str = "") -> Published | None:
        """The data that were read before; None without them, or without the key `kid` if one is given."""
        entry = self._entries.get(provider)
        if entry is None or entry.published is None or time.monotonic() - entry.read_at >= self._max_stale:
            return None
        return entry.published if not kid or kid in entry.published.keys else None

    async def find(self, provider: Provider, kid: str = "") -> Published:
        """The public data of a provider, if possible with the key `kid`. Raises ProviderUnavailable.

        Concurrent callers share one read. A caller with a known `kid` does not wait for it.
        """
        if (entry := self._entries.get(provider)) is None:
            self._entries.put(provider, entry := _Entry())
        known, now = self.known(provider, kid), time.monotonic()
        pause = REFRESH_PAUSE if self.known(provider) else self._retry_pause
        is_due = known is None or now - entry.read_at >= MAX_AGE
        if is_due and entry.running is None and now - entry.tried_at >= pause:
            entry.tried_at = now
            entry.running = asyncio.create_task(self._read(provider, entry))
        if known is None and entry.running:
            await asyncio.shield(entry.running)
            if entry.problem:
                raise entry.problem.with_traceback(None)
        if published := known or self.known(provider):
            return published
        raise (entry.problem or bad_answer("it publishes no keys")).with_traceback(None)

    async def _read(self, provider: Provider, entry: _Entry) -> None:
        now = time.monotonic()
        try:
            metadata = await _read_metadata(provider)
            self._check(provider, metadata)
            entry.published = Published(metadata, await _read_keys(provider, metadata.jwks_uri))
            entry.read_at, entry.problem = now, None
        except ProviderUnavailable as problem:
            entry.problem = problem
            if self._log_event:
                log.warning(self._log_event, directory=provider.tenant_id, problem=problem.params["problem"])
        finally:
            entry.running = None


async def _read_metadata(provider: Provider) -> Metadata:
    document = await get_json(provider, f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration")
    methods = document.get("token_endpoint_auth_methods_supported")
    addresses = {
        name: address if isinstance(address := document.get(name), str) and _ADDRESS.fullmatch(address) else ""
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint")
    }
    return Metadata(
        str(document.get("issuer")),
        **addresses,
        takes_secret_in_form=isinstance(methods, list) and "client_secret_basic" not in methods,
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


async def _read_keys(provider: Provider, url: str) -> Mapping[str, Mapping[str, Any]]:
    keys = (await get_json(provider, url)).get("keys")
    found = [key for key in keys if isinstance(key, dict) and "kid" in key] if isinstance(keys, list) else []
    # A key with its private part `d` was published by mistake: everyone can forge its tokens.
    signing = {str(key["kid"]): key for key in found if key.get("use", "sig") == "sig" and "d" not in key}
    if not signing:
        raise bad_answer("it publishes no keys")
    return signing


class ProviderClient:
    """Talks to the identity providers of tenants. Every method raises ProviderUnavailable or Overloaded."""

    def __init__(self, limits: WeakValueDictionary[str, ConcurrencyLimit] | None = None) -> None:
        self._keys = PublishedKeys(_check_metadata)
        self._limits = WeakValueDictionary[str, ConcurrencyLimit]() if limits is None else limits

    async def check(self, provider: Provider, redirect_uri: str) -> None:
        """Read anew what a provider publishes, and send it a code that it does not know. Raises SecretRefused."""
        try:
            await ProviderClient(self._limits).exchange(provider, UNKNOWN_CODE, UNKNOWN_CODE, redirect_uri)
        except RefusedByProvider as refused:  # It has to. The reason says whether it knows the secret.
            if (error := refused.params["error"]) in SECRET_ERRORS:
                raise SecretRefused(error) from None

    async def metadata(self, provider: Provider) -> Metadata:
        return (await self._published(provider)).metadata

    async def exchange(self, provider: Provider, code: str, verifier: str, redirect_uri: str) -> Mapping[str, Any]:
        """The provider's answer to the code of a sign-in. Raises RefusedByProvider."""
        metadata = await self.metadata(provider)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        if metadata.takes_secret_in_form:
            form |= {"client_id": provider.client_id, "client_secret": provider.client_secret}
        else:
            names = (quote(text, safe="") for text in (provider.client_id, provider.client_secret))
            headers["Authorization"] = aiohttp.encode_basic_auth(*names)
        async with self._limit(provider).acquire(WAIT_TIMEOUT):
            status, answer = await post_form(provider, metadata.token_endpoint, form, headers)
        if status != 200 or not isinstance(answer.get("id_token"), str):
            raise RefusedByProvider(error=error_code(answer.get("error")))
        return answer

    async def verify(self, provider: Provider, token: str, required: Sequence[str]) -> dict[str, Any]:
        """The claims of a token that the provider signed for us. Raises TokenRefused."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg", "")
            if algorithm not in KEY_TYPES:
                raise TokenRefused(problem="its signature is of another kind than RS256 and ES256")
            kid = str(header.get("kid", ""))
            if (key := (await self._published(provider, kid)).key(kid, algorithm)) is None:
                raise TokenRefused(problem="the provider does not publish its key")
            return jwt.decode(
                token,
                key,
                [algorithm],
                {"require": ["iat", "iss", "aud", *required]},
                audience=provider.client_id,
                issuer=provider.issuer,
                leeway=CLOCK_SKEW,
            )
        except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError):
            raise ClocksDiffer from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefused(problem=f"it lacks {error.claim}") from None
        except (jwt.InvalidIssuerError, jwt.InvalidAudienceError):
            raise TokenRefused(problem="it was issued by or for another program") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise TokenRefused(problem="its signature or its form is not valid") from None

    async def _published(self, provider: Provider, kid: str = "") -> Published:
        if published := self._keys.known(provider, kid):
            return published
        async with self._limit(provider).acquire(WAIT_TIMEOUT):
            return await self._keys.find(provider, kid)

    def _limit(self, provider: Provider) -> ConcurrencyLimit:
        # The dictionary keeps a limit only while a call of its tenant runs or waits.
        return self._limits.setdefault(provider.tenant_id, ConcurrencyLimit(CALLS, waiting=WAITING))


def _check_metadata(provider: Provider, metadata: Metadata) -> None:
    if metadata.issuer != provider.issuer:
        raise ProviderUnavailable(problem="it names another issuer than this one", reason="provider_issuer")
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    if not all(getattr(metadata, name) for name in names):
        raise bad_answer(f"it does not publish {', '.join(names)} with https://")


def error_code(error: object) -> str:
    """A provider's error code, as far as it may be shown."""
    text = error if isinstance(error, str) and len(error) <= ERROR_LIMIT and error.isascii() else ""
    return text if text.replace("_", "").isalnum() else "unknown"
