"""Sign-in with an identity provider: the authorization code flow with PKCE, `state` and `nonce`."""

import base64
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from auth_service.login.service import Login
from auth_service.oidc.model import (
    NoProvider,
    PendingSignIn,
    Provider,
    RefusedByProvider,
    RoleMissing,
    SignInExpired,
    TokenRefused,
    TooManyGroups,
)
from auth_service.oidc.provider import ProviderClient, check_access_token, error_code
from auth_service.oidc.store import MongoProviderStore, RedisPendingSignIns
from auth_service.users.model import NO_PASSWORD, User
from auth_service.users.service import Users
from common.auth.internal_tokens import Caller
from common.auth.roles import Role

CALLBACK = "sign_in/oidc/callback"
SCOPE = "openid profile email"
TEXT_LIMIT = 256  # characters of a name or an e-mail address
_NOT_IN_USERNAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class BegunSignIn:
    """Where the browser goes, and the secret that its cookie keeps until it comes back."""

    url: str
    browser: str


@dataclass(frozen=True)
class FinishedSignIn:
    token: str
    next_url: str


@dataclass(frozen=True)
class OidcSignIn:
    """Signs users in with the identity provider of their tenant."""

    providers: MongoProviderStore
    pending: RedisPendingSignIns
    client: ProviderClient
    users: Users
    login: Login

    async def begin(self, caller: Caller, next_url: str) -> BegunSignIn:
        """Raises NoProvider or ProviderUnavailable."""
        provider = await self._provider(caller.tenant_id)
        metadata = await self.client.metadata(provider)
        state, nonce, verifier, browser = (secrets.token_urlsafe(32) for _ in range(4))
        sign_in = PendingSignIn(caller.tenant_id, provider.issuer, nonce, verifier, next_url, _digest(browser))
        await self.pending.add(state, sign_in)
        query = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": f"{caller.base_url}/{CALLBACK}",
            "scope": SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        return BegunSignIn(f"{metadata.authorization_endpoint}{separator}{urlencode(query)}", browser)

    async def finish(
        self, caller: Caller, answer: Mapping[str, str], browser: str, *, request_id: str
    ) -> FinishedSignIn:
        """Open a session for the user of a provider's `answer`, which has the query of the callback.

        Raises SignInRefused with the reason, NoProvider, or ProviderUnavailable.
        """
        sign_in = await self.pending.take(answer.get("state", ""))
        provider = await self._provider(caller.tenant_id)
        if (
            sign_in is None
            or (sign_in.tenant_id, sign_in.issuer) != (caller.tenant_id, provider.issuer)
            or not hmac.compare_digest(sign_in.browser, _digest(browser))
            or answer.get("iss", provider.issuer) != provider.issuer
        ):
            raise SignInExpired
        if not (code := answer.get("code")):
            raise RefusedByProvider(error=error_code(answer.get("error")))
        redirect_uri = f"{caller.base_url}/{CALLBACK}"
        tokens = await self.client.exchange(provider, code, sign_in.verifier, redirect_uri)
        audience = provider.client_id
        claims = await self.client.verify(provider, tokens["id_token"], audience=audience, required=["sub"])
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), sign_in.nonce.encode()):
            raise TokenRefused(problem="it belongs to another sign-in")
        if claims.get("azp", audience if claims["aud"] in (audience, [audience]) else None) != audience:
            raise TokenRefused(problem="it was issued for another program")
        check_access_token(claims, tokens.get("access_token"))
        user = await self.users.sign_in(_user(provider, claims))
        token = await self.login.open_session(caller, user, request_id=request_id)
        return FinishedSignIn(token, sign_in.next_url)

    async def _provider(self, tenant_id: str) -> Provider:
        if (provider := await self.providers.find(tenant_id)) is None:
            raise NoProvider
        return provider


def _user(provider: Provider, claims: Mapping[str, Any]) -> User:
    """The user of verified claims. Raises RoleMissing or TooManyGroups."""
    subject = str(claims["sub"])
    texts = {name: _text(claims.get(name)) for name in ("name", "email", "preferred_username")}
    stem = _NOT_IN_USERNAMES.sub("-", (texts["preferred_username"] or texts["email"]).partition("@")[0])[:32]
    suffix = sha256(f"{provider.issuer}\n{subject}".encode()).hexdigest()[:12]
    username = f"{stem.strip('.-') or 'user'}-{suffix}"
    return User(
        provider.tenant_id,
        username,
        NO_PASSWORD,
        datetime.now(UTC),
        _roles(provider, claims),
        issuer=provider.issuer,
        subject=subject,
        name=texts["name"],
        email=texts["email"],
    )


def _roles(provider: Provider, claims: Mapping[str, Any]) -> tuple[Role, ...]:
    claim = provider.roles_claim
    values = claims.get(claim, ())
    values = {values} if isinstance(values, str) else {value for value in values if isinstance(value, str)}
    mapped = {role for value, role in provider.role_map if value in values}
    if mapped:
        return tuple(role for role in Role if role in mapped)
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, dict) and claim in elsewhere:
        raise TooManyGroups(claim=claim)
    if provider.default_role is None:
        raise RoleMissing(claim=claim)
    return (provider.default_role,)


def _text(value: object) -> str:
    """A claim's text without what no page may show."""
    text = value[:TEXT_LIMIT] if isinstance(value, str) else ""
    return "".join(character for character in text if character.isprintable())


def _digest(browser: str) -> str:
    return sha256(browser.encode()).hexdigest()
