"""Reads the verified claims of a token: the user, the roles, and whether the token belongs to this sign-in."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from auth_service.oidc.model import Provider, RoleMissing, TokenRefused, TooManyGroups
from auth_service.users.model import NO_PASSWORD, User
from common.auth.roles import Role, parse_roles

TEXT_LIMIT = 256  # characters of a name or an e-mail address
SUBJECT_LIMIT = 255  # characters, by the standard


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
