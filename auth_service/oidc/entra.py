"""Verifies access tokens of Entra ID for the app of a tenant."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
import orjson

from auth_service.oidc.client import PublishedKeys, bad_answer
from auth_service.oidc.model import Metadata, Provider, ProviderUnavailable
from auth_service.settings import PUBLIC_ENTRA
from auth_service.tenants.service import Tenants
from common.auth.signing import CLOCK_SKEW
from common.errors import NotAuthenticated, Problem

ALGORITHM = "RS256"
MAX_STALE = 86400.0  # seconds that keys count while Entra ID does not answer
RETRY_PAUSE = 5.0  # seconds after a failed read, while no key is known
EVERY_NETWORK = ("0.0.0.0/0", "::/0")
V1_ISSUER = "https://sts.windows.net/{directory}/"
REQUIRED = ["exp", "nbf", "iat", "iss", "aud", "tid", "scp", "ver"]


class EntraUnavailable(Problem):
    status = 503  # winget tries again after `Retry-After`.
    code = "entra_unavailable"
    text = "The keys of Entra ID cannot be read: {problem}. Try again soon."
    retry_after = 5


class EntraTokenRefused(NotAuthenticated):
    """`problem` says what is wrong, without anything from the token."""

    code = "entra_token_refused"
    text = "The token of Entra ID is not accepted: {problem}. Ask your administrator."


@dataclass(frozen=True)
class EntraUser:
    """The ring that a user's app roles or groups choose, "" for none; the end of the token in seconds since 1970."""

    ring: str
    expires_at: int


class EntraTokens:
    """Verifies the tokens that winget sends. `authority` publishes the keys; each directory has its address there."""

    def __init__(self, tenants: Tenants, authority: str) -> None:
        self._tenants = tenants
        self._authority = authority
        self._keys = PublishedKeys(
            self._check_metadata, max_stale=MAX_STALE, retry_pause=RETRY_PAUSE, log_event="entra_keys_unavailable"
        )

    async def identify(self, tenant_id: str, token: str, rules: Sequence[tuple[str, str]]) -> EntraUser:
        """The user of a token. `rules` are pairs of an app role or group id and its ring, before those of the app.

        Raises EntraTokenRefused, TenantNotFound, or EntraUnavailable if no key is known.
        """
        app = (await self._tenants.find(tenant_id)).entra
        if app is None:
            raise EntraTokenRefused(problem="this tenant has no app of Entra ID")
        header, unverified = _unverified_parts(token)
        if header.get("alg") != ALGORITHM:
            raise EntraTokenRefused(problem="it is not signed with RS256")
        directory = unverified.get("tid")
        if directory not in app.directories:
            raise EntraTokenRefused(problem="its organization is not on the tenant's list")
        v2_issuer, key = await self._key(str(directory), str(header.get("kid", "")))
        if key is None:
            raise EntraTokenRefused(problem="Entra ID does not publish its key")
        shapes = {"1.0": (V1_ISSUER.format(directory=directory), app.resource), "2.0": (v2_issuer, app.client_id)}
        if (shape := shapes.get(str(unverified.get("ver")))) is None:
            raise EntraTokenRefused(problem="it is no access token for this source")
        claims = _verified_claims(token, key, *shape)
        # An ID token for the app has no scope.
        if app.scope not in str(claims["scp"]).split():
            raise EntraTokenRefused(problem="it lacks the scope of this source")
        values = {value for name in ("roles", "groups") for value in _texts(claims.get(name))}
        ring = next((ring for value, ring in (*rules, *app.rings) if value in values), "")
        return EntraUser(ring, int(claims["exp"]) + CLOCK_SKEW)

    async def _key(self, directory: str, kid: str) -> tuple[str, Any]:
        """The issuer of version 2 tokens of a directory, and its key `kid`, or None. Raises EntraUnavailable."""
        # The operator names an authority other than the public one, so its address may be private.
        networks = () if self._authority == PUBLIC_ENTRA else EVERY_NETWORK
        provider = Provider(directory, f"{self._authority}/{directory}/v2.0", "", "", allowed_networks=networks)
        try:
            published = await self._keys.find(provider, kid)
        except ProviderUnavailable as unavailable:
            raise EntraUnavailable(problem=unavailable.params["problem"]) from None
        return published.metadata.issuer, published.key(kid, ALGORITHM)

    def _check_metadata(self, provider: Provider, metadata: Metadata) -> None:
        is_same = metadata.issuer.endswith(f"/{provider.tenant_id}/v2.0")
        if not is_same or not metadata.jwks_uri.startswith(f"{self._authority}/"):
            raise bad_answer("it describes another directory")


def _verified_claims(token: str, key: Any, issuer: str, audience: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            [ALGORITHM],
            {"require": REQUIRED, "strict_aud": True},
            audience=audience,
            issuer=issuer,
            leeway=CLOCK_SKEW,
        )
    except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError):
        raise EntraTokenRefused(problem="it has expired or is not valid yet") from None
    except (jwt.InvalidIssuerError, jwt.InvalidAudienceError):
        raise EntraTokenRefused(problem="it was issued by or for another app") from None
    except jwt.MissingRequiredClaimError:
        raise EntraTokenRefused(problem="it is no access token for this source") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise EntraTokenRefused(problem="its signature is not valid") from None
    return claims


def _unverified_parts(token: str) -> list[Mapping[str, Any]]:
    """The header and the claims, unverified: they only choose the key. Raises EntraTokenRefused."""
    try:
        header, claims, _ = token.split(".")
        parts = [orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (header, claims)]
    except ValueError:
        raise EntraTokenRefused(problem="it is no token") from None
    if not all(isinstance(part, dict) for part in parts):
        raise EntraTokenRefused(problem="it is no token")
    return parts


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
