"""Sign-in with an identity provider: the authorization code flow with PKCE, `state` and `nonce`; and its sign-out."""

import base64
import hmac
import secrets
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode, urlsplit

from auth_service.oidc.client import CLOCK_SKEW, ProviderClient, error_code, trusted
from auth_service.oidc.model import (
    LogoutRefused,
    NoBreakGlass,
    NoProvider,
    PendingSignIn,
    Provider,
    ProviderChanged,
    RefusedByProvider,
    RoleMissing,
    SetByOperator,
    SignInExpired,
    TokenRefused,
    TooManyGroups,
)
from auth_service.oidc.store import LOGOUT_TOKEN_LIFETIME, MongoProviderStore, RedisSignIns
from auth_service.users.login import Login
from auth_service.users.service import Users
from auth_service.users.store import NO_PASSWORD, LastAdministrator, User
from auth_service.users.throttle_store import Throttle
from common.auth.internal_tokens import Caller
from common.auth.roles import Role, parse_roles
from common.auth.sessions import Sessions
from common.errors import InvalidField, NotAuthenticated, Problem

CALLBACK = "sign_in/oidc/callback"
SCOPE = "openid profile email"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
TEXT_LIMIT = 256  # characters of a name or an e-mail address
SUBJECT_LIMIT = 255  # characters, by the standard


@dataclass(frozen=True)
class BegunSignIn:
    """The address to which the browser goes, and the secret that its cookie keeps until it comes back."""

    url: str
    browser: str


@dataclass(frozen=True)
class FinishedSignIn:
    token: str
    next_url: str


@dataclass(frozen=True)
class OidcSignIn:
    """Signs users in and out with the identity provider of their tenant."""

    providers: MongoProviderStore
    sign_ins: RedisSignIns
    client: ProviderClient
    users: Users
    login: Login
    sessions: Sessions
    throttle: Throttle

    async def begin(self, caller: Caller, next_url: str) -> BegunSignIn:
        """Raises NoProvider, TooManyFailures or ProviderUnavailable."""
        provider = await self._provider(caller.tenant_id)
        await self.throttle.count_begun(caller.ip)
        metadata = await self.client.metadata(provider)
        state, nonce, verifier, browser = (secrets.token_urlsafe(32) for _ in range(4))
        pending = PendingSignIn(provider.issuer, nonce, verifier, next_url, _digest(browser))
        await self.sign_ins.add(caller.tenant_id, state, pending)
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
        return BegunSignIn(_with_query(metadata.authorization_endpoint, query), browser)

    async def finish(
        self, caller: Caller, answer: Mapping[str, str], browser: str, *, request_id: str
    ) -> FinishedSignIn:
        """Open a session for the user of a provider's `answer`, which has the query of the callback.

        Raises the reason why not: SignInExpired, RefusedByProvider, TokenRefused, RoleMissing, TooManyGroups,
        NoProvider, or ProviderUnavailable.
        """
        pending = await self.sign_ins.take(caller.tenant_id, answer.get("state", ""))
        provider = await self._provider(caller.tenant_id)
        if (
            pending is None
            or pending.issuer != provider.issuer
            or not hmac.compare_digest(pending.browser, _digest(browser))
        ):
            raise SignInExpired
        sends_issuer = (await self.client.metadata(provider)).sends_issuer
        if answer.get("iss", "" if sends_issuer else provider.issuer) != provider.issuer:
            raise TokenRefused(problem="it is the answer of another provider")
        if not (code := answer.get("code")):
            raise RefusedByProvider(error=error_code(answer.get("error")))
        tokens = await self.client.exchange(provider, code, pending.verifier, f"{caller.base_url}/{CALLBACK}")
        claims = await self.client.verify(provider, tokens["id_token"], ["exp", "sub", "nonce"])
        check_binding(provider, claims, pending.nonce, tokens.get("access_token"))
        user = await self.users.sign_in(user_of(provider, claims))
        token = await self.login.open_session(caller, user, request_id=request_id)
        session, provider_session = self.sessions.parse_token(token), claims.get("sid")
        has_ended = provider_session and not await self.sign_ins.add_session(session, str(provider_session))
        # The operator may have changed the provider after this sign-in read it, and before it opened a session.
        if has_ended or await self.providers.find(caller.tenant_id) != provider:
            await self.sessions.close(session)
            raise SignInExpired
        return FinishedSignIn(token, pending.next_url)

    async def sign_out(self, caller: Caller, token: str, *, request_id: str) -> str:
        """End a session; the address where its user ends the session of the provider, "" if there is none."""
        with suppress(NotAuthenticated):
            session = self.sessions.parse_token(token)
            await self.login.logout(caller, token, request_id=request_id)
            user = await self.users.find(caller.tenant_id, session.username)
            provider = await self.providers.find(caller.tenant_id)
            if session.tenant_id == caller.tenant_id and user and provider and user.issuer == provider.issuer:
                with suppress(Problem):  # The session has ended here, whether the provider answers or not.
                    return await self._end_session_url(caller, provider)
        return ""

    async def _end_session_url(self, caller: Caller, provider: Provider) -> str:
        endpoint = (await self.client.metadata(provider)).end_session_endpoint
        query = {"client_id": provider.client_id, "post_logout_redirect_uri": f"{caller.base_url}/sign_in"}
        return _with_query(endpoint, query) if endpoint else ""

    async def log_out(self, caller: Caller, logout_token: str, *, request_id: str) -> None:
        """End the sessions that a provider's logout token names. Raises LogoutRefused or ProviderUnavailable."""
        tenant_id = caller.tenant_id
        provider = await self._provider(tenant_id)
        try:
            claims = await self.client.verify(provider, logout_token, ["jti", "events"])
            subject = subject_of(claims) if "sub" in claims else ""
        except TokenRefused as refused:
            raise LogoutRefused(problem=refused.params.get("problem", "the clocks differ")) from None
        events, provider_session = claims["events"], claims.get("sid")
        if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict) or "nonce" in claims:
            raise LogoutRefused(problem="it is no logout token")
        if not provider_session and not subject:
            raise LogoutRefused(problem="it names neither a session nor a user")
        if int(claims["iat"]) < time.time() - LOGOUT_TOKEN_LIFETIME + 2 * CLOCK_SKEW:
            raise LogoutRefused(problem="it is too old")
        if await self.sign_ins.is_logout_token_used(tenant_id, str(claims["jti"])):
            raise LogoutRefused(problem="it was used before")
        if provider_session:
            for session in await self.sign_ins.end_sessions(tenant_id, str(provider_session)):
                await self.login.end(caller, session, request_id=request_id)
        elif user := await self.users.find_subject(tenant_id, provider.issuer, subject):
            await self.login.end_all(caller, user.username, request_id=request_id)
        await self.sign_ins.keep_logout_token(tenant_id, str(claims["jti"]))

    async def _provider(self, tenant_id: str) -> Provider:
        if (provider := await self.providers.find(tenant_id)) is None:
            raise NoProvider
        return provider


def _with_query(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _digest(browser: str) -> str:
    return sha256(browser.encode("utf-8", "surrogatepass")).hexdigest()


def check_binding(provider: Provider, claims: Mapping[str, Any], nonce: str, access_token: object) -> None:
    """Raise TokenRefused for an ID token of another sign-in, another program or another access token."""
    if claims["nonce"] != nonce:
        raise TokenRefused(problem="it belongs to another sign-in")
    audience = provider.client_id
    if claims.get("azp", audience if claims["aud"] in (audience, [audience]) else None) != audience:
        raise TokenRefused(problem="it was issued by or for another program")
    if "at_hash" in claims:
        digest = sha256(str(access_token).encode()).digest()  # of RS256 and ES256
        if claims["at_hash"] != base64.urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("="):
            raise TokenRefused(problem="it belongs to another access token")


def user_of(provider: Provider, claims: Mapping[str, Any]) -> User:
    """The user of verified claims. Raises TokenRefused, RoleMissing or TooManyGroups."""
    subject = subject_of(claims)
    digest = sha256(f"{provider.issuer}\n{subject}".encode()).hexdigest()
    return User(
        provider.tenant_id,
        f"company-{digest[:16]}",  # Logs have usernames, and no claim may reach a log.
        NO_PASSWORD,
        datetime.now(UTC),
        _roles(provider, claims),
        issuer=provider.issuer,
        subject=subject,
        name=_text(claims.get("name")),
        email=_text(claims.get("email")),
    )


def subject_of(claims: Mapping[str, Any]) -> str:
    """The user of claims, in ASCII by the standard. Raises TokenRefused."""
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LIMIT or not subject.isascii():
        raise TokenRefused(problem="it does not name a user")
    return subject


def _roles(provider: Provider, claims: Mapping[str, Any]) -> tuple[Role, ...]:
    claim = provider.roles_claim
    values = claims.get(claim, ())
    values = [values] if isinstance(values, str) else values if isinstance(values, list) else []
    mapped = [role for value, role in provider.role_map if value in values]
    if mapped:
        return parse_roles(mapped)
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, dict) and claim in elsewhere:
        raise TooManyGroups(claim=claim)
    if provider.default_role is None:
        raise RoleMissing(claim=claim)
    return (provider.default_role,)


def _text(value: object) -> str:
    """A claim's text without characters that change the direction of text or are not printable."""
    text = value[:TEXT_LIMIT] if isinstance(value, str) else ""
    return "".join(character for character in text if character.isprintable())


ENTRA = "login.microsoftonline.com"
MANY_ORGANISATIONS = {"common", "organizations", "consumers", "9188040d-6c67-4c5b-b112-36a304b66dad"}  # of consumers


def check_provider(provider: Provider) -> None:
    """Raise InvalidField for a value that no provider can have."""
    issuer = urlsplit(provider.issuer)
    if issuer.scheme != "https" or not issuer.hostname or issuer.query or issuer.fragment or issuer.username:
        raise InvalidField(
            "issuer", "must be an address such as https://login.example.com/realms/acme", reason="not_an_issuer"
        )
    if issuer.hostname == ENTRA and issuer.path.casefold().strip("/").split("/")[0] in MANY_ORGANISATIONS:
        text = f"lets every organisation sign in; use https://{ENTRA}/<tenant id>/v2.0"
        raise InvalidField("issuer", text, reason="everybodys_issuer")
    if not provider.client_id or not provider.client_secret:
        raise InvalidField("client_secret", "must have a secret, and the client id a value", reason="no_registration")
    try:
        trusted(provider.ca_certificate)
    except (ssl.SSLError, ValueError):
        raise InvalidField("ca_certificate", "must have certificates in PEM", reason="not_pem") from None


def shown(provider: Provider, name: str) -> dict[str, str]:
    """A provider without its secret, by the names of the operator's options."""
    return {
        "issuer": provider.issuer,
        "client_id": provider.client_id,
        "name": name,
        "roles_claim": provider.roles_claim,
        "map": ", ".join(f"{value}={role}" for value, role in provider.role_map),
        "default_role": provider.default_role or "none",
        "allow_network": ", ".join(provider.allowed_networks),
        "ca_file": "set" if provider.ca_certificate else "",
    }


@dataclass(frozen=True)
class Providers:
    """Sets, shows and removes the provider of a tenant."""

    store: MongoProviderStore
    client: ProviderClient
    users: Users

    async def find(self, tenant_id: str) -> Provider:
        """Raises NoProvider."""
        if (provider := await self.store.find(tenant_id)) is None:
            raise NoProvider
        return provider

    async def set(self, provider: Provider, login_name: str, *, with_passwords: bool) -> None:
        """Set the provider, if it answers; end the sessions of users who cannot sign in with it or with a password.

        Raises InvalidField, ProviderUnavailable, or NoBreakGlass.
        """
        check_provider(provider)
        await self.client.metadata(provider)
        try:
            await self.users.set_login(provider.tenant_id, login_name, with_passwords=with_passwords)
        except LastAdministrator:
            raise NoBreakGlass from None
        await self.store.put(provider)
        await self.users.end_other_sessions(provider.tenant_id, provider.issuer, with_passwords=with_passwords)

    async def find_editable(self, tenant_id: str) -> Provider:
        """The provider that administrators of the tenant change; without one, a provider without an issuer.

        Raises SetByOperator.
        """
        networks, provider = self.store.tenant_networks, await self.store.find(tenant_id)
        if networks is None or (provider and not provider.by_tenant):
            raise SetByOperator
        return provider or Provider(tenant_id, "", "", "", allowed_networks=networks, by_tenant=True)

    async def check(self, provider: Provider, redirect_uri: str) -> None:
        """Raise InvalidField, SecretRefused or ProviderUnavailable if nobody could sign in with the provider."""
        check_provider(provider)
        await self.client.check(provider, redirect_uri)

    async def edit(self, before: Provider, provider: Provider, login_name: str) -> None:
        """Set a checked provider of the tenant's administrators in place of `before`. Everybody may use passwords.

        Raises ProviderChanged.
        """
        if not await self.store.put_instead(before, provider):
            raise ProviderChanged
        await self.users.set_login(provider.tenant_id, login_name, with_passwords=True)
        await self.users.end_other_sessions(provider.tenant_id, provider.issuer, with_passwords=True)

    async def remove(self, tenant_id: str) -> None:
        """Remove the provider, and end the sessions of its users. Passwords are allowed again. Raises NoProvider."""
        await self.users.set_login(tenant_id, "", with_passwords=True)
        is_deleted = await self.store.delete(tenant_id)
        await self.users.end_other_sessions(tenant_id, "", with_passwords=True)
        if not is_deleted:
            raise NoProvider
