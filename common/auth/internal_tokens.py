"""Internal tokens: the gateway and the services vouch for a caller to each other.

A token is for one service, one operation, one tenant and one caller, and lives 30 seconds. It is signed with the key of
the called service, which only its callers know. Services refuse requests without such a token.
"""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from ipaddress import ip_address
from itertools import takewhile
from typing import Any, Self

import jwt
import orjson

from common.auth.roles import EVERY_PACKAGE, Permission, PermissionMissing, Role, matches, roles_of
from common.auth.signing import ALGORITHM, Keys, TokenVerifier
from common.caching import FifoCache
from common.errors import NotAuthenticated
from common.tenants import ALL_RINGS, Address, Tenant, network_of

INTERNAL_TOKEN = "X-Internal-Token"  # noqa: S105  the header's name
REQUEST_ID = "X-Internal-Request-Id"
# The digest of the package ids that are hidden from the caller. The gateway sends it if it knows it, and a response
# says which ids it leaves out.
HIDDEN = "X-Internal-Hidden"
LIFETIME = 30  # seconds
REUSE_PERIOD = 12.0  # seconds, less than half of the lifetime
MAX_TOKENS = 4096  # that a signer keeps
# The claims: of the tenant, only its id and limits; of the caller, everything.
_TENANT_CLAIMS = ("tenant_id", "storage_quota", "max_clients", "version_key", "strict_installers", "source_address")
_TEXT_CLAIMS = ("ip", "username", "session_id", "client_id", "base_url", "creator", "ring", "token_id", "site_url")


def hidden_digest(package_ids: Iterable[str]) -> str:
    """The digest of the package ids that are hidden from a caller, in any order; "" for none."""
    hidden = sorted(package_ids)
    return sha256(orjson.dumps(hidden)).hexdigest() if hidden else ""


def operation_of(parts: Iterable[str]) -> str:
    """The name of an operation between services: its path up to the first parameter, such as `winget/information`."""
    return "/".join(takewhile(lambda part: not part.startswith("{"), parts))


class UntrustedCaller(NotAuthenticated):
    """The request has no valid internal token: it bypassed the gateway, or the keys differ."""

    code = "untrusted_caller"


class Kind(StrEnum):
    """How the caller was identified."""

    ANONYMOUS = "anonymous"
    CLIENT = "client"
    ADMINISTRATOR = "administrator"
    SERVICE = "service"


class Deployment(StrEnum):
    """The form of this deployment's paths: with a tenant's id, or with `client/api` for the only tenant."""

    MULTI = "multi"
    SINGLE = "single"


@dataclass(frozen=True)
class Caller:
    """The caller of a request.

    `username` is set for a user or an API token (`token:<name>`), `client_id` for a client, `session_id` for a caller
    with a session. `roles` are those of a user or a token. `packages` are patterns of the package ids that a token may
    change. `creator` is the user who created the token, `token_id` the token's id. `ring` is the ring of a client, ""
    for the tenant's last one; outside the catalog it is the one that was chosen for the client. A user of Entra ID is a
    client without an id.
    `base_url` is the public address of this tenant's operations, such as `https://packages.example.com/acme`.
    `site_url` is the address at which the caller's site downloads installers; "" without a site.
    """

    tenant: Tenant
    kind: Kind = Kind.ANONYMOUS
    ip: str = "127.0.0.1"
    username: str = ""
    session_id: str = ""
    client_id: str = ""
    base_url: str = ""
    deployment: Deployment = Deployment.MULTI
    roles: tuple[Role, ...] = ()
    packages: tuple[str, ...] = EVERY_PACKAGE
    creator: str = ""
    ring: str = ""
    token_id: str = ""
    site_url: str = ""

    @property
    def audience(self) -> str:
        """The ring whose versions the caller sees: `ALL_RINGS` for users, API tokens and services."""
        return self.ring if self.kind is Kind.CLIENT or self.kind is Kind.ANONYMOUS else ALL_RINGS

    @property
    def person(self) -> str:
        """The user behind this caller: of an API token, the user who created it."""
        return self.creator or self.username

    @property
    def tenant_id(self) -> str:
        return self.tenant.tenant_id

    @property
    def address(self) -> Address:
        return ip_address(self.ip)

    @property
    def network(self) -> str:
        return network_of(self.ip)

    def require_package(self, package_id: str) -> None:
        """Raise PermissionMissing if this is a token that may not change the package."""
        if not matches(self.packages, package_id):
            detail = f"This token may change only packages whose ids match {' or '.join(self.packages)}."
            raise PermissionMissing(detail, permission=Permission.CATALOG_WRITE, reason="other_package")

    @property
    def is_restricted(self) -> bool:
        """Whether this is a token that may change only some packages."""
        return self.packages != EVERY_PACKAGE

    def require_uploader(self, uploader: str) -> None:
        """Raise PermissionMissing if this is a restricted token, and the upload was begun by another caller."""
        if self.is_restricted and uploader != self.username:
            detail = "This token may use only uploads that it began itself."
            raise PermissionMissing(detail, permission=Permission.CATALOG_WRITE, reason="other_upload")

    @classmethod
    def service(cls, tenant: Tenant) -> Self:
        """A service that acts for a tenant without a request."""
        return cls(tenant=tenant, kind=Kind.SERVICE)

    def as_administrator(
        self,
        username: str,
        session_id: str,
        roles: tuple[Role, ...],
        packages: tuple[str, ...] = EVERY_PACKAGE,
        creator: str = "",
        token_id: str = "",
    ) -> Self:
        """This caller as a user or an API token, with its roles."""
        # `dataclasses.replace` takes twice as long.
        session, where = (username, session_id), (self.base_url, self.deployment)
        token = creator, "", token_id, self.site_url
        return type(self)(self.tenant, Kind.ADMINISTRATOR, self.ip, *session, "", *where, roles, packages, *token)

    def as_client(self, client_id: str, ring: str = "") -> Self:
        where = self.base_url, self.deployment
        site = self.site_url
        return type(self)(self.tenant, Kind.CLIENT, self.ip, "", "", client_id, *where, ring=ring, site_url=site)


def sign(key: str, caller: Caller, *, service: str, operation: str) -> str:
    """A token for one `operation` of one `service`, without settings of the tenant that only the gateway uses."""
    now = int(time.time())
    claims = {
        "aud": service,
        "op": operation,
        "iat": now,
        "exp": now + LIFETIME,
        "tenant": {name: getattr(caller.tenant, name) for name in _TENANT_CLAIMS},
        "kind": caller.kind,
        "deployment": caller.deployment,
        "roles": caller.roles,
        "packages": caller.packages,
        **{name: getattr(caller, name) for name in _TEXT_CLAIMS},
    }
    return jwt.encode(claims, key, algorithm=ALGORITHM)


class Signer:
    """Signs tokens for one service, and reuses a token for the same caller and operation for some seconds."""

    def __init__(self, keys: Keys, *, service: str) -> None:
        self._keys = keys
        self._service = service
        # The tokens and the times of their signing, in seconds since 1970.
        self._signed: FifoCache[tuple[str, Caller, str], tuple[str, float]] = FifoCache(MAX_TOKENS)

    def sign(self, caller: Caller, operation: str) -> str:
        """A token as `sign` returns it, valid for at least `LIFETIME - REUSE_PERIOD` seconds more."""
        key, now = self._keys.signing, time.time()
        signed = self._signed.get((key, caller, operation))
        if signed is None or not 0 <= now - signed[1] < REUSE_PERIOD:
            signed = sign(key, caller, service=self._service, operation=operation), now
            self._signed.put((key, caller, operation), signed)
        return signed[0]


class Callers:
    """Verifies the internal tokens of one service."""

    def __init__(self, keys: Keys, *, service: str) -> None:
        self._tokens = TokenVerifier(keys, audience=service, required=["op", "tenant"], parse=_parse_claims)

    def verify(self, token: str, *, operation: str, tenant_id: str) -> Caller:
        """The caller that a token names. Raises UntrustedCaller, also for another service, operation or tenant."""
        with suppress(jwt.InvalidTokenError, UnicodeError, KeyError, TypeError, ValueError):
            signed_operation, caller = self._tokens.verify(token)
            if signed_operation == operation and caller.tenant_id == tenant_id:
                return caller
        raise UntrustedCaller("This service answers the gateway only.")


def _parse_claims(claims: Mapping[str, Any]) -> tuple[str, Caller]:
    tenant = Tenant.from_document({"client_authentication": False, "allowed_networks": (), **claims["tenant"]})
    claims = {"token_id": "", "site_url": "", **claims}  # A gateway of an earlier release does not send them.
    texts = {name: claims[name] for name in _TEXT_CLAIMS}
    kind, deployment = Kind(claims["kind"]), Deployment(claims["deployment"])
    roles = roles_of(claims) if kind is Kind.ADMINISTRATOR else ()
    packages = tuple(claims["packages"])
    caller = Caller(tenant, kind, deployment=deployment, roles=roles, packages=packages, **texts)
    return claims["op"], caller
