"""Who calls, as one part of the product vouches for it to another.

The gateway signs a token for one service, one operation, one tenant and one caller; a service answers nothing without
it. The token lives 30 seconds, and is signed with the key of the service that is asked, which only its askers have.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from ipaddress import IPv6Network, ip_address
from itertools import takewhile
from typing import Any, Self

import jwt
import orjson

from common.auth.signing import ALGORITHM, Keys
from common.auth.tokens import Tokens
from common.caching.bounded_cache import FifoCache
from common.errors import NotAuthenticated
from common.tenants import Address, Tenant, VersionKey

INTERNAL_TOKEN = "X-Internal-Token"  # noqa: S105  the header's name
REQUEST_ID = "X-Internal-Request-Id"
HIDDEN = "X-Internal-Hidden"  # comes with a catalog: what stands for the packages that are left out of it
LIFETIME = 30  # seconds
REUSED = 12.0  # seconds, less than half of that
REMEMBERED_AT_MOST = 4096  # tokens


def hidden_word(package_ids: Iterable[str]) -> str:
    """What stands for packages that are hidden from a caller: the same for the same ones, "" for none."""
    hidden = sorted(package_ids)
    return sha256(orjson.dumps(hidden)).hexdigest() if hidden else ""


def operation_of(parts: Iterable[str]) -> str:
    """What names an operation between services: its path up to the first value, such as `winget/information`."""
    return "/".join(takewhile(lambda part: not part.startswith("{"), parts))


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

    @property
    def place(self) -> str:
        return place_of(self.ip)

    @classmethod
    def service(cls, tenant: Tenant) -> Self:
        """A service that acts of its own accord for a tenant."""
        return cls(tenant=tenant, kind=Kind.SERVICE)

    def as_administrator(self, username: str, session_id: str) -> Self:
        return self._as(Kind.ADMINISTRATOR, username=username, session_id=session_id)

    def as_client(self, client_id: str) -> Self:
        return self._as(Kind.CLIENT, client_id=client_id)

    def _as(self, kind: Kind, *, username: str = "", session_id: str = "", client_id: str = "") -> Self:
        """Whom a token names, where there is no other yet. `dataclasses.replace` takes twice as long."""
        return type(self)(self.tenant, kind, self.ip, username, session_id, client_id, self.base_url, self.deployment)


def place_of(ip: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 one: whoever has one address there has all of them."""
    return ip if ip_address(ip).version == 4 else str(IPv6Network((ip, 64), strict=False))


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
            "strict_installers": tenant.strict_installers,
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


class Signer:
    """Signs for the callers of one service; a token serves all that a caller asks of an operation for a while."""

    def __init__(self, keys: Keys, *, service: str) -> None:
        self._keys = keys
        self._service = service
        self._signed: FifoCache[tuple[Caller, str], _Signed] = FifoCache(REMEMBERED_AT_MOST)

    def sign(self, caller: Caller, operation: str) -> str:
        """A token as `sign` gives it, that lives for `LIFETIME - REUSED` seconds at least."""
        key, now = self._keys.signing, time.time()
        signed = self._signed.get((caller, operation))
        if signed is None or signed.key != key or not 0 <= now - signed.at < REUSED:
            signed = _Signed(sign(key, caller, service=self._service, operation=operation), key, now)
            self._signed.put((caller, operation), signed)
        return signed.token


class Callers:
    """Knows the callers of one service by their tokens."""

    def __init__(self, keys: Keys, *, service: str) -> None:
        self._tokens = Tokens(keys, audience=service, required=["op", "tenant"], parse=_called)

    def verify(self, token: str, *, operation: str, tenant_id: str) -> Caller:
        """The caller that a token names.

        Raises:
            UntrustedCaller: the token is not ours, not for this service, operation or tenant, or expired.
        """
        try:
            called, caller = self._tokens.read(token)
        except (jwt.InvalidTokenError, UnicodeError, KeyError, TypeError, ValueError):
            raise UntrustedCaller("This service answers the gateway only.") from None
        if called != operation or caller.tenant_id != tenant_id:
            raise UntrustedCaller("This service answers the gateway only.")
        return caller


@dataclass(frozen=True)
class _Signed:
    token: str
    key: str
    at: float  # seconds since 1970


def _called(claims: Mapping[str, Any]) -> tuple[str, Caller]:
    return claims["op"], _caller(claims)


def _caller(claims: Mapping[str, Any]) -> Caller:
    tenant = claims["tenant"]
    return Caller(
        tenant=Tenant(
            tenant_id=tenant["tenant_id"],
            storage_quota=tenant["storage_quota"],
            max_clients=tenant["max_clients"],
            version_key=VersionKey(tenant["version_key"]),
            strict_installers=tenant.get("strict_installers") is True,  # A gateway of before does not say.
        ),
        kind=Kind(claims["kind"]),
        ip=claims["ip"],
        username=claims["username"],
        session_id=claims["session_id"],
        client_id=claims["client_id"],
        base_url=claims["base_url"],
        deployment=Deployment(claims["deployment"]),
    )
