"""Targets: tokens and signatures. No input is a valid token, except where a target signs it."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import jwt
from redis.asyncio import Redis

from common.auth.downloads import download_url
from common.auth.internal_tokens import Caller, Callers, Deployment, Kind, UntrustedCaller
from common.auth.sessions import Session, SessionCheck, Sessions
from common.auth.signing import ALGORITHM
from common.errors import NotAuthenticated
from common.service_client.client import ServiceClient
from common.tenants import Tenant, is_tenant_id
from gateway.auth.authenticator import Authenticator
from gateway.auth.directories import ClientDirectory, PolicyDirectory, TenantDirectory, UserDirectory
from gateway.operations import OPERATIONS
from gateway.routing import Target
from tests.fuzz.addresses import SETTINGS
from tests.fuzz.requests import outcome, request
from tests.support.factories import KEY, KEYS
from upload_service.downloads.service import Address, Downloads
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.uploads.store import MongoUploadStore

CALLERS = Callers(KEYS, service="catalog_service")
DOOR = {"operation": "add_package", "tenant_id": "acme"}
SESSIONS = Sessions(Redis(), keys=KEYS, lifetime=3600, idle=3600)  # liveness is not checked
CLIENT_VERSION = next(row for row in OPERATIONS if row.name == "client_version")
VISITOR = Caller(Tenant("acme"))
SERVER_FILENAME = f"{'0' * 32}.msi"
NAME_LIMIT = 512  # characters of a file name: package name, version and suffix
EXPIRES = 99999999999
GOOD, ALTERED = 404, 403  # the response to a valid address without an installer, and to an invalid address


class _NoInstaller:
    """A store that expects valid addresses only, and has no installer."""

    async def find_installer(self, _: str, server_filename: str) -> None:
        assert server_filename == SERVER_FILENAME


DOWNLOADS = Downloads(
    cast("MongoUploadStore", _NoInstaller()), cast("StorageBackends", None), cast("FolderStorage", None), KEYS
)


def internal_token(data: bytes) -> None:
    """An unsigned internal token authenticates no caller."""
    with suppress(UntrustedCaller):
        CALLERS.verify(data.decode(errors="surrogateescape"), **DOOR)
        raise AssertionError("a caller without our signature")


def internal_claims(data: bytes) -> None:
    """Signed claims authenticate a caller of the named service, or no caller."""
    with suppress(UntrustedCaller):
        caller = CALLERS.verify(_signed(data), **DOOR)
        assert caller.tenant_id == "acme"
        assert caller.kind in Kind


def session_token(data: bytes) -> None:
    """An unsigned session token opens no session."""
    with suppress(NotAuthenticated):
        SESSIONS.parse_token(data.decode(errors="surrogateescape"))
        raise AssertionError("a session without our signature")


def session_claims(data: bytes) -> None:
    """Signed claims are a session with a tenant and a user, or no session."""
    with suppress(NotAuthenticated):
        session = SESSIONS.parse_token(_signed(data))
        assert all(isinstance(part, str) for part in (session.tenant_id, session.username, session.session_id))


def caller(data: bytes) -> None:
    """Forged credentials never authenticate an administrator or a client.

    The lines of an input: the Authorization header, the Content-Type, the body.
    """
    authorization, _, rest = data.partition(b"\n")
    kind, _, body = rest.partition(b"\n")
    headers = [("Content-Type", kind.decode(errors="surrogateescape"))]
    if authorization:
        headers.append(("Authorization", authorization.decode(errors="surrogateescape")))
    clients = ClientDirectory(cast("ServiceClient", _Registry()))
    tenants = TenantDirectory(cast("ServiceClient", _Registry()))
    users = UserDirectory(cast("ServiceClient", _Registry()))
    policies, sessions = PolicyDirectory(cast("ServiceClient", _Registry())), cast("Sessions", _Sessions())
    authenticator = Authenticator(SETTINGS, sessions, tenants, users, clients, policies)
    identified = authenticator.identify(request(headers, body), CLIENT_VERSION, VISITOR, SessionCheck(None))
    assert outcome(identified) in (VISITOR, 400, 401, 413)


def download(data: bytes) -> None:
    """A signed address for any file name is valid and routed; every other address is not.

    The lines of an input: a file name, a forged expiry and a forged signature.
    """
    name, expires, signature = (f"{data.decode(errors='surrogateescape')}\n\n").split("\n")[:3]
    signed_url = urlsplit(
        download_url(
            VISITOR,
            KEYS,
            direct="http://host",
            server_filename=SERVER_FILENAME,
            file_name=name[:NAME_LIMIT],
            expires=EXPIRES,
        )
    )
    target = Target.parse("GET", signed_url.path, Deployment.MULTI, "")
    query = {field: values[0] for field, values in parse_qs(signed_url.query).items()}
    address = Address(target.tenant_id, *target.segments[1:], **query)
    assert address.server_filename == SERVER_FILENAME
    assert outcome(DOWNLOADS.find(address)) == GOOD
    for forged in (
        replace(address, expires=expires),
        replace(address, signature=signature),
        replace(address, file_name=name),
        replace(address, server_filename=name),
        replace(address, tenant_id=name if is_tenant_id(name) else "another"),
    ):
        # An expiry may have leading zeros: it means the same.
        if replace(forged, expires=forged.expires.lstrip("0")) != address:
            assert outcome(DOWNLOADS.find(forged)) == ALTERED


class _Sessions:
    """Sessions that are all alive."""

    async def check(self, tenant_id: str, token: str) -> Session:
        return SESSIONS.parse_token(token)


class _Registry:
    """A registry without clients."""

    async def json(self, _: Caller, operation: str, data: dict[str, Any]) -> dict[str, str]:
        assert operation == "identify_client"
        assert isinstance(data["auth_token"], str)
        return {"client_id": ""}


def _signed(claims: bytes) -> str:
    return jwt.PyJWS().encode(claims, KEY, algorithm=ALGORITHM, headers={"typ": "JWT"})
