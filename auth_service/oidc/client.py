"""The metadata and keys of identity providers, and the tokens that they sign."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary

import aiohttp
import jwt

from auth_service.oidc.discovery import KEY_TYPES, Published, PublishedKeys, bad_answer, post_form
from auth_service.oidc.model import (
    ClocksDiffer,
    Metadata,
    Provider,
    ProviderUnavailable,
    RefusedByProvider,
    TokenRefused,
)
from common.concurrency.limits import ConcurrencyLimit

CLOCK_SKEW = 60  # seconds that the clocks may differ
# A provider that hangs must not take the slots of sign-ins with a password.
CALLS, WAITING, WAIT_TIMEOUT = 4, 28, 2.0  # of one tenant; seconds
ERROR_LIMIT = 64  # characters of a provider's error code that are shown


class ProviderClient:
    """Talks to the identity providers of tenants. Every method raises ProviderUnavailable or Overloaded."""

    def __init__(self) -> None:
        self._keys = PublishedKeys(_check_metadata)
        self._limits: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()

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
        raise ProviderUnavailable(problem="it names another issuer than the operator set", reason="provider_issuer")
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    if not all(getattr(metadata, name) for name in names):
        raise bad_answer(f"it does not publish {', '.join(names)} with https://")


def error_code(error: object) -> str:
    """A provider's error code, as far as it may be shown."""
    text = error if isinstance(error, str) and len(error) <= ERROR_LIMIT and error.isascii() else ""
    return text if text.replace("_", "").isalnum() else "unknown"
