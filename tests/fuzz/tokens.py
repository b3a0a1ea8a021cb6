"""Targets: what proves that a caller may do something. No input can be a token of ours, except where we sign it."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import jwt
from redis.asyncio import Redis

from common.auth.callers import Caller, Callers, Deployment, Kind, UntrustedCaller
from common.auth.downloads import download_url
from common.auth.sessions import Session, SessionCheck, Sessions
from common.auth.signing import ALGORITHM
from common.errors import NotAuthenticated
from common.service_client.client import ServiceClient
from common.tenants import Tenant, is_tenant_id
from gateway.auth.authenticator import Authenticator
from gateway.auth.client_directory import ClientDirectory
from gateway.operations import OPERATIONS
from gateway.routing.target import Target
from gateway.routing.tenant_directory import TenantDirectory
from tests.fuzz.addresses import SETTINGS
from tests.fuzz.requests import outcome, request
from tests.support.factories import KEY, KEYS
from upload_service.downloads.service import Address, Downloads
from upload_service.storage.filesystem import FolderStorage, StorageBackends

CALLERS = Callers(KEYS, service="catalog_service")
DOOR = {"operation": "add_package", "tenant_id": "acme"}
SESSIONS = Sessions(Redis(), keys=KEYS, lifetime=3600, idle=3600)  # never asked whether one lives
CLIENT_VERSION = next(row for row in OPERATIONS if row.name == "client_version")
VISITOR = Caller(Tenant("acme"))
SERVER_FILENAME = f"{'0' * 32}.msi"
NAME_LIMIT = 512  # characters of a file's name: a package's name, a version and an ending
EXPIRES = 99999999999
GOOD, ALTERED = 404, 403  # what a store without installers answers to a good address, and what any answers to another


class _NoInstaller:
    """A store that is asked for good addresses only."""

    async def find_installer(self, _: str, server_filename: str) -> None:
        assert server_filename == SERVER_FILENAME


DOWNLOADS = Downloads(_NoInstaller(), cast("StorageBackends", None), cast("FolderStorage", None), KEYS)


def internal_token(data: bytes) -> None:
    """Whatever was not signed by us is no caller."""
    with suppress(UntrustedCaller):
        CALLERS.verify(data.decode(errors="surrogateescape"), **DOOR)
        raise AssertionError("a caller without our signature")


def internal_claims(data: bytes) -> None:
    """What we signed is a caller of the door it is for, or no caller."""
    with suppress(UntrustedCaller):
        caller = CALLERS.verify(_signed(data), **DOOR)
        assert caller.tenant_id == "acme"
        assert caller.kind in Kind


def session_token(data: bytes) -> None:
    """Whatever was not signed by us is no session."""
    with suppress(NotAuthenticated):
        SESSIONS.read(data.decode(errors="surrogateescape"))
        raise AssertionError("a session without our signature")


def session_claims(data: bytes) -> None:
    """What we signed is a session that names a tenant and a user, or none."""
    with suppress(NotAuthenticated):
        session = SESSIONS.read(_signed(data))
        assert all(isinstance(part, str) for part in (session.tenant_id, session.username, session.session_id))


def caller(data: bytes) -> None:
    """Nobody becomes an administrator or a client by what they write.

    The lines of an input: the Authorization header, the Content-Type, the body.
    """
    authorization, _, rest = data.partition(b"\n")
    kind, _, body = rest.partition(b"\n")
    headers = [("Content-Type", kind.decode(errors="surrogateescape"))]
    if authorization:
        headers.append(("Authorization", authorization.decode(errors="surrogateescape")))
    clients = ClientDirectory(cast("ServiceClient", _Registry()))
    tenants = TenantDirectory(cast("ServiceClient", _Registry()))
    authenticator = Authenticator(SETTINGS, cast("Sessions", _Sessions()), tenants, clients)
    identified = authenticator.identify(request(headers, body), CLIENT_VERSION, VISITOR, SessionCheck(None))
    assert outcome(identified) in (VISITOR, 400, 401, 413)


def download(data: bytes) -> None:
    """The address that we make of any name is good and has a door; no other is.

    The lines of an input: a file's name, and an expiry and a signature that somebody made up.
    """
    name, expires, signature = (f"{data.decode(errors='surrogateescape')}\n\n").split("\n")[:3]
    made = urlsplit(
        download_url(
            VISITOR,
            KEYS,
            direct="http://host",
            server_filename=SERVER_FILENAME,
            file_name=name[:NAME_LIMIT],
            expires=EXPIRES,
        )
    )
    target = Target.parse("GET", made.path, Deployment.MULTI, "")
    given = {field: values[0] for field, values in parse_qs(made.query).items()}
    ours = Address(target.tenant_id, *target.segments[1:], **given)
    assert ours.server_filename == SERVER_FILENAME
    assert outcome(DOWNLOADS.find(ours)) == GOOD
    for theirs in (
        replace(ours, expires=expires),
        replace(ours, signature=signature),
        replace(ours, file_name=name),
        replace(ours, server_filename=name),
        replace(ours, tenant_id=name if is_tenant_id(name) else "another"),
    ):
        # An expiry may be written with zeros before it: it means the same.
        if replace(theirs, expires=theirs.expires.lstrip("0")) != ours:
            assert outcome(DOWNLOADS.find(theirs)) == ALTERED


class _Sessions:
    """Sessions that Redis would find alive."""

    async def check(self, tenant_id: str, token: str) -> Session:
        return SESSIONS.read(token)


class _Registry:
    """A registry that knows no client."""

    async def json(self, _: Caller, operation: str, told: dict[str, Any]) -> dict[str, str]:
        assert operation == "identify_client"
        assert isinstance(told["auth_token"], str)
        return {"client_id": ""}


def _signed(claims: bytes) -> str:
    return jwt.PyJWS().encode(claims, KEY, algorithm=ALGORITHM, headers={"typ": "JWT"})
