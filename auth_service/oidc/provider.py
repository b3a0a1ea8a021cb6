"""What an identity provider publishes, its keys, and the tokens that it signs."""

import base64
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import aiohttp
import jwt

from auth_service.oidc.http import get_json, post_form
from auth_service.oidc.model import Metadata, Provider, ProviderUnavailable, RefusedByProvider, TokenRefused
from common.auth.signing import CLOCK_SKEW
from common.caching.bounded_cache import FifoCache

ALGORITHMS = ("RS256", "ES256")
MAX_AGE = 3600.0  # seconds of metadata and keys
REFRESH_PAUSE = 60.0  # seconds between two requests for keys because of an unknown `kid`
MAX_PROVIDERS = 1000
ERROR_LIMIT = 64  # characters of a provider's error code that are shown


@dataclass(frozen=True)
class _Known:
    metadata: Metadata
    keys: Mapping[str, Mapping[str, Any]]  # by `kid`
    fetched_at: float  # by the monotonic clock


class ProviderClient:
    """Talks to the identity providers of tenants. Every method raises ProviderUnavailable."""

    def __init__(self) -> None:
        self._known: FifoCache[Provider, _Known] = FifoCache(MAX_PROVIDERS)

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
        auth = None
        if metadata.takes_secret_in_form:
            form |= {"client_id": provider.client_id, "client_secret": provider.client_secret}
        else:
            auth = aiohttp.BasicAuth(quote(provider.client_id, safe=""), quote(provider.client_secret, safe=""))
        status, answer = await post_form(provider, metadata.token_endpoint, form, auth)
        if status != 200 or not isinstance(answer.get("id_token"), str):
            raise RefusedByProvider(error=error_code(answer.get("error")))
        return answer

    async def verify(self, provider: Provider, token: str, *, audience: str, required: list[str]) -> dict[str, Any]:
        """The claims of a token that the provider signed for `audience`. Raises TokenRefused."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                raise TokenRefused(problem="its signature is of another kind than RS256 and ES256")
            key = await self._key(provider, str(header.get("kid", "")), algorithm)
            return jwt.decode(
                token,
                key,
                [algorithm],
                {"require": ["exp", "iat", "iss", "aud", *required]},
                audience=audience,
                issuer=provider.issuer,
                leeway=CLOCK_SKEW,
            )
        except jwt.ExpiredSignatureError:
            raise TokenRefused(problem="it has expired, or the clocks differ") from None
        except jwt.ImmatureSignatureError:
            raise TokenRefused(problem="it is not valid yet; the clocks differ") from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefused(problem=f"it lacks {error.claim}") from None
        except (jwt.InvalidIssuerError, jwt.InvalidAudienceError):
            raise TokenRefused(problem="it was issued by or for another program") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise TokenRefused(problem="its signature is not valid") from None

    async def _key(self, provider: Provider, kid: str, algorithm: str) -> Any:
        known = await self._find(provider)
        if kid not in known.keys and time.monotonic() - known.fetched_at >= REFRESH_PAUSE:
            known = await self._fetch(provider)
        if kid not in known.keys:
            raise TokenRefused(problem="the provider does not publish its key")
        return jwt.PyJWK.from_dict(dict(known.keys[kid]), algorithm).key

    async def _find(self, provider: Provider) -> _Known:
        known = self._known.get(provider)
        if known is None or time.monotonic() - known.fetched_at >= MAX_AGE:
            known = await self._fetch(provider)
        return known

    async def _fetch(self, provider: Provider) -> _Known:
        fetched_at = time.monotonic()
        document = await get_json(provider, f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != provider.issuer:
            raise ProviderUnavailable(problem="it names another issuer than the operator set")
        metadata = _metadata(document)
        keys = (await get_json(provider, metadata.jwks_uri)).get("keys")
        if not isinstance(keys, list):
            raise ProviderUnavailable(problem="it publishes no keys")
        by_kid = {str(key["kid"]): key for key in keys if isinstance(key, dict) and "kid" in key and _signs(key)}
        known = _Known(metadata, by_kid, fetched_at)
        self._known.put(provider, known)
        return known


def error_code(error: object) -> str:
    """A provider's error code, as far as it may be shown."""
    text = str(error) if isinstance(error, str) else ""
    return text if 0 < len(text) <= ERROR_LIMIT and text.replace("_", "").isalnum() and text.isascii() else "unknown"


def check_access_token(claims: Mapping[str, Any], access_token: object, algorithm_digest: Any = sha256) -> None:
    """Raise TokenRefused if an ID token has the digest of another access token."""
    if "at_hash" not in claims:
        return
    digest = algorithm_digest(str(access_token).encode()).digest()
    expected = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=")
    if not hmac.compare_digest(expected, str(claims["at_hash"]).encode()):
        raise TokenRefused(problem="it belongs to another access token")


def _signs(key: Mapping[str, Any]) -> bool:
    return key.get("kty") in {"RSA", "EC"} and key.get("use", "sig") == "sig"


def _metadata(document: Mapping[str, Any]) -> Metadata:
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    authorization, token, jwks = (str(document.get(name, "")) for name in names)
    if not all(address.startswith("https://") for address in (authorization, token, jwks)):
        raise ProviderUnavailable(problem=f"it does not publish {', '.join(names)} with https")
    end = document.get("end_session_endpoint")
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Metadata(
        authorization,
        token,
        jwks,
        end_session_endpoint=end if isinstance(end, str) and end.startswith("https://") else "",
        takes_secret_in_form="client_secret_basic" not in methods,
    )
