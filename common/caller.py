"""Who calls, as one part of the product vouches for it to another.

The gateway signs a token for one service, one operation, one tenant and one caller; a service answers nothing without
it. The token lives 30 seconds, and is signed with the key of the service that is asked, which only its askers have.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Self

import jwt

from common.errors import NotAuthenticated
from common.signing import ALGORITHM, Keys
from common.tenants import Address, Tenant, VersionKey

INTERNAL_TOKEN = "X-Internal-Token"  # noqa: S105  the header's name
REQUEST_ID = "X-Internal-Request-Id"
LIFETIME = 30  # seconds


class UntrustedCaller(NotAuthenticated):
    """A request that did not come through the gateway, or from a part with another key."""

    code = "untrusted_caller"


class Kind(StrEnum):
    """How the caller was identified."""

    ANONYMOUS = "anonymous"
    CLIENT = "client"
    ADMINISTRATOR = "administrator"
    SERVICE = "service"


class Deployment(StrEnum):
    """Which form the paths of this deployment have (the introduction's table)."""

    MULTI = "multi"
    SINGLE = "single"


@dataclass(frozen=True)
class Caller:
    """The one a request is answered for.

    `username` is set for an administrator, `client_id` for a client, `session_id` for whoever has a session;
    `base_url` is where callers reach this tenant's operations, such as `https://packages.example.com/acme`.
    """

    tenant: Tenant
    kind: Kind = Kind.ANONYMOUS
    ip: str = "127.0.0.1"
    username: str = ""
    session_id: str = ""
    client_id: str = ""
    base_url: str = ""
    deployment: Deployment = Deployment.MULTI

    @property
    def tenant_id(self) -> str:
        return self.tenant.tenant_id

    @property
    def address(self) -> Address:
        return ip_address(self.ip)

    @classmethod
    def service(cls, tenant: Tenant) -> Self:
        """A service that acts of its own accord for a tenant."""
        return cls(tenant=tenant, kind=Kind.SERVICE)

    def as_administrator(self, username: str, session_id: str) -> Self:
        return replace(self, kind=Kind.ADMINISTRATOR, username=username, session_id=session_id)

    def as_client(self, client_id: str) -> Self:
        return replace(self, kind=Kind.CLIENT, client_id=client_id)


def sign(key: str, caller: Caller, *, service: str, operation: str) -> str:
    """A token by which `service` knows the caller of one `operation`, and the tenant's limits.

    What only the gateway decides by (networks, client authentication) does not travel.
    """
    now = int(time.time())
    tenant = caller.tenant
    claims = {
        "aud": service,
        "op": operation,
        "iat": now,
        "exp": now + LIFETIME,
        "tenant": {
            "tenant_id": tenant.tenant_id,
            "storage_quota": tenant.storage_quota,
            "max_clients": tenant.max_clients,
            "version_key": tenant.version_key,
        },
        "kind": caller.kind,
        "ip": caller.ip,
        "username": caller.username,
        "session_id": caller.session_id,
        "client_id": caller.client_id,
        "base_url": caller.base_url,
        "deployment": caller.deployment,
    }
    return jwt.encode(claims, key, algorithm=ALGORITHM)


def verify(keys: Keys, token: str, *, service: str, operation: str, tenant_id: str) -> Caller:
    """The caller that a token names.

    Raises:
        UntrustedCaller: the token is not ours, not for this service, operation or tenant, or expired.
    """
    try:
        claims = keys.claims(token, audience=service, required=["op", "tenant"])
        caller = _caller(claims)
    except (jwt.InvalidTokenError, UnicodeError, KeyError, TypeError, ValueError):
        raise UntrustedCaller("This service answers the gateway only.") from None
    if claims.get("op") != operation or caller.tenant_id != tenant_id:
        raise UntrustedCaller("This service answers the gateway only.")
    return caller


def _caller(claims: Mapping[str, Any]) -> Caller:
    tenant = claims["tenant"]
    return Caller(
        tenant=Tenant(
            tenant_id=tenant["tenant_id"],
            storage_quota=tenant["storage_quota"],
            max_clients=tenant["max_clients"],
            version_key=VersionKey(tenant["version_key"]),
        ),
        kind=Kind(claims["kind"]),
        ip=claims["ip"],
        username=claims["username"],
        session_id=claims["session_id"],
        client_id=claims["client_id"],
        base_url=claims["base_url"],
        deployment=Deployment(claims["deployment"]),
    )
