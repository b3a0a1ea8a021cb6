"""The metadata and keys of identity providers, and the tokens that they sign."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import aiohttp
import jwt

from auth_service.oidc.http import bad_answer, get_json, post_form
from auth_service.oidc.model import (
    ClocksDiffer,
    Metadata,
    Provider,
    ProviderUnavailable,
    RefusedByProvider,
    TokenRefused,
)
from common.caching import FifoCache
from common.concurrency.limits import ConcurrencyLimit

KEY_TYPES = {"RS256": "RSA", "ES256": "EC"}  # by the algorithms that tokens may have
CLOCK_SKEW = 60  # seconds that the clocks may differ
MAX_AGE = 3600.0  # seconds of metadata and keys
REFRESH_PAUSE = 60.0  # seconds between two requests for keys because of an unknown `kid`
MAX_PROVIDERS = 1000
# A provider that hangs must not take the slots of sign-ins with a password.
CALLS, WAITING, WAIT_TIMEOUT = 4, 28, 2.0  # of one tenant; seconds
_ADDRESS = re.compile(r"https://[!-~]{1,2000}")
ERROR_LIMIT = 64  # characters of a provider's error code that are shown


@dataclass(frozen=True)
class _Known:
    metadata: Metadata
    keys: Mapping[str, Mapping[str, Any]]  # by `kid`
    fetched_at: float  # by the monotonic clock
    tried_at: float  # the last time that they were requested, with or without success


class ProviderClient:
    """Talks to the identity providers of tenants. Every method raises ProviderUnavailable or Overloaded."""

    def __init__(self) -> None:
        self._known: FifoCache[Provider, _Known] = FifoCache(MAX_PROVIDERS)
        self._limits: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()

    async def metadata(self, provider: Provider) -> Metadata:
        return (await self._find(provider)).metadata

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
            return jwt.decode(
                token,
                await self._key(provider, str(header.get("kid", "")), algorithm),
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

    async def _key(self, provider: Provider, kid: str, algorithm: str) -> Any:
        known = await self._find(provider)
        if kid not in known.keys:
            known = await self._find(provider, may_be_stale=False)
        key = dict(known.keys.get(kid, {}))
        if key.get("kty") != KEY_TYPES[algorithm] or key.get("alg", algorithm) != algorithm:
            raise TokenRefused(problem="the provider does not publish its key")
        return jwt.PyJWK.from_dict(key, algorithm).key

    async def _find(self, provider: Provider, *, may_be_stale: bool = True) -> _Known:
        """The metadata and keys of the last hour. Data that may not be stale is requested once a minute."""
        if known := self._cached(provider, may_be_stale=may_be_stale):
            return known
        async with self._limit(provider).acquire(WAIT_TIMEOUT):
            if known := self._cached(provider, may_be_stale=may_be_stale):
                return known
            try:
                return await self._fetch(provider)
            except ProviderUnavailable:
                if known := self._known.get(provider):
                    self._known.put(provider, replace(known, tried_at=time.monotonic()))
                raise

    def _cached(self, provider: Provider, *, may_be_stale: bool) -> _Known | None:
        known, now = self._known.get(provider), time.monotonic()
        if known is None:
            return None
        is_fresh = now - known.fetched_at < MAX_AGE if may_be_stale else now - known.tried_at < REFRESH_PAUSE
        return known if is_fresh else None

    def _limit(self, provider: Provider) -> ConcurrencyLimit:
        # The dictionary keeps a limit only while a call of its tenant runs or waits.
        return self._limits.setdefault(provider.tenant_id, ConcurrencyLimit(CALLS, waiting=WAITING))

    async def _fetch(self, provider: Provider) -> _Known:
        now = time.monotonic()
        document = await get_json(provider, f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != provider.issuer:
            raise ProviderUnavailable(problem="it names another issuer than the operator set", reason="provider_issuer")
        metadata = _metadata(document)
        known = _Known(metadata, await fetch_keys(provider, metadata.jwks_uri), now, now)
        self._known.put(provider, known)
        return known


def error_code(error: object) -> str:
    """A provider's error code, as far as it may be shown."""
    text = error if isinstance(error, str) and len(error) <= ERROR_LIMIT and error.isascii() else ""
    return text if text.replace("_", "").isalnum() else "unknown"


async def fetch_keys(provider: Provider, url: str) -> Mapping[str, Mapping[str, Any]]:
    """The keys for signatures at an address, by `kid`. Raises ProviderUnavailable if there is none."""
    keys = (await get_json(provider, url)).get("keys")
    found = [key for key in keys if isinstance(key, dict) and "kid" in key] if isinstance(keys, list) else []
    # A key with its private part `d` was published by mistake: everyone can forge its tokens.
    signing = {str(key["kid"]): key for key in found if key.get("use", "sig") == "sig" and "d" not in key}
    if not signing:
        raise bad_answer("it publishes no keys")
    return signing


def _metadata(document: Mapping[str, Any]) -> Metadata:
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    authorization, token, jwks = (_address(document, name) for name in names)
    if not (authorization and token and jwks):
        raise bad_answer(f"it does not publish {', '.join(names)} with https://")
    methods = document.get("token_endpoint_auth_methods_supported")
    return Metadata(
        authorization,
        token,
        jwks,
        end_session_endpoint=_address(document, "end_session_endpoint"),
        takes_secret_in_form=isinstance(methods, list) and "client_secret_basic" not in methods,
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(document: Mapping[str, Any], name: str) -> str:
    """An address that the provider publishes; "" for one that no header may have."""
    address = document.get(name)
    return address if isinstance(address, str) and _ADDRESS.fullmatch(address) else ""
