"""Access by credential: every kind of caller at every operation of the table."""

import time
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any
from uuid import uuid4

import jwt
import pytest

from common.auth.internal_tokens import Caller, Deployment, sign
from common.auth.roles import ADMINISTRATOR
from common.auth.sessions import AUDIENCE
from common.auth.signing import ALGORITHM
from common.tenants import Tenant
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.api import Answer
from tests.support.factories import KEY
from tests.support.system.problems import check_error
from tests.support.system.seed import CLIENTS, UNKNOWN, as_winget, segments, title
from tests.support.system.services import Api, Services, bearer
from tests.support.tables import every_cell

INVALID = "The session token is not valid, or no longer."
MISSING = "Send one header `Authorization: Bearer <token>` with a token of /login."
WANTED = "This tenant wants a valid session token or client token."
KINDS = ("multi", "single", "multi, enforcing", "single, enforcing")  # of tenants


class Credential(StrEnum):
    """The credentials of a caller."""

    ADMINISTRATOR = "administrator"
    CLIENT = "client"
    ANONYMOUS = "anonymous"
    OTHER_SCHEME = "other scheme"
    TWO_TOKENS = "two tokens"
    LOGGED_OUT = "logged out"
    EXPIRED = "expired"
    FORGED = "forged"
    UNSIGNED = "unsigned"
    OTHER_AUDIENCE = "for a service"
    SERVICE = "service token"
    CLIENT_AS_BEARER = "client token as Bearer"
    COOKIE = "session in a cookie"


WITHOUT_BEARER = {Credential.CLIENT, Credential.ANONYMOUS, Credential.COOKIE}
UNREADABLE = {Credential.OTHER_SCHEME, Credential.TWO_TOKENS}


@dataclass(frozen=True)
class Credentials:
    """The credentials of each credential, besides a valid session and client token."""

    api: Api
    enforcing: bool
    session: str
    logged_out: str
    client: str

    def of(self, credential: Credential, row: Operation) -> dict[str, Any]:
        match credential:
            case Credential.ANONYMOUS:
                return {}
            case Credential.CLIENT:
                request = {"data": {"auth_token": self.client}}
                return as_winget(request) if row.is_winget else request
            case Credential.OTHER_SCHEME:
                return {"headers": {"Authorization": f"Basic {self.session}"}}
            case Credential.COOKIE:
                return {"headers": {"Cookie": f"session-{self.api.tenant_id}={self.session}"}}
            case Credential.TWO_TOKENS:
                return {"headers": [("Authorization", f"Bearer {self.session}")] * 2}
            case _:
                return {"headers": bearer(self._token(credential, row))}

    def _token(self, credential: Credential, row: Operation) -> str:
        claims = jwt.decode(self.session, KEY, algorithms=[ALGORITHM], audience=AUDIENCE)
        # All keys are equal in these tests, so only the audience separates the kinds of tokens.
        caller = Caller(Tenant(self.api.tenant_id)).as_administrator(claims["sub"], claims["jti"], ADMINISTRATOR)
        tokens = {
            Credential.ADMINISTRATOR: self.session,
            Credential.LOGGED_OUT: self.logged_out,
            Credential.EXPIRED: jwt.encode({**claims, "exp": int(time.time()) - 600}, KEY, algorithm=ALGORITHM),
            Credential.FORGED: jwt.encode(claims, f"not {KEY}", algorithm=ALGORITHM),
            Credential.UNSIGNED: jwt.encode(claims, "", algorithm="none"),
            Credential.OTHER_AUDIENCE: jwt.encode({**claims, "aud": row.service}, KEY, algorithm=ALGORITHM),
            Credential.SERVICE: sign(KEY, caller, service=row.service, operation=row.name),
            Credential.CLIENT_AS_BEARER: self.client,
        }
        return tokens[credential]


async def credentials(api: Api, gateway: Api, *, enforcing: bool) -> Credentials:
    """The credentials of callers of a tenant. `gateway` issues them, `api` is tested."""
    session, other = await gateway.signed_in(), await gateway.signed_in()
    logged_out = other.headers["Authorization"].removeprefix("Bearer ")
    await other.call("POST", "logout", data={"token": logged_out})
    answer = await session.call("POST", "add_client", data={"client_name": f"pc-{uuid4().hex}"})
    assert answer.status == 201, answer.body
    token = session.headers["Authorization"].removeprefix("Bearer ")
    return Credentials(api.anonymous(), enforcing, token, logged_out, answer.body["auth_token"])


def matrix(kind: str) -> list[tuple[Operation, Credential]]:
    """All cells of clients, whose access depends on the kind of tenant, and a quarter of the others.

    All kinds together have every pair of two.
    """
    place = KINDS.index(kind)
    return [
        (row, credential)
        for (number, row), (other, credential) in product(enumerate(OPERATIONS), enumerate(Credential))
        if row.access in CLIENTS or (number + other) % len(KINDS) == place
    ]


@pytest.fixture(scope="module")
async def callers(services: Services, enforcing: Api, enforcing_single: Api) -> dict[str, Credentials]:
    """The callers of each kind of tenant."""
    tenant, single = await services.tenant(), await services.tenant(Deployment.SINGLE)
    single_by_multi = await services.api(single.tenant_id).signed_in()
    return {
        "multi": await credentials(tenant, tenant, enforcing=False),
        "single": await credentials(single, single_by_multi, enforcing=False),
        "multi, enforcing": await credentials(enforcing, enforcing, enforcing=True),
        "single, enforcing": await credentials(enforcing_single, enforcing, enforcing=True),
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_an_operation_is_open_to_the_credentials_of_its_row(kind: str, callers: dict[str, Credentials]) -> None:
    known = callers[kind]
    with every_cell() as cell:
        for row, credential in matrix(kind):
            with cell(title(row), credential):
                answer = await known.api.call(row.method, *segments(row, UNKNOWN), **known.of(credential, row))
                if _is_allowed(row, credential, enforcing=known.enforcing):
                    assert answer.status != 401
                    assert answer.status < 500
                else:
                    check_refused(row, credential, answer)


def check_refused(row: Operation, credential: Credential, answer: Answer) -> None:
    reason = _reason(row, credential)
    check_error(row, answer, 401, "not_authenticated")
    assert answer.body["message" if row.is_winget else "detail"] == reason
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def _is_allowed(row: Operation, credential: Credential, *, enforcing: bool) -> bool:
    match row.access:
        case Access.ADMINISTRATOR | Access.SESSION:
            return credential is Credential.ADMINISTRATOR
        case Access.CLIENT | Access.PACKAGE_MANAGER:
            return not enforcing or credential in {Credential.ADMINISTRATOR, Credential.CLIENT}
        case _:
            return True


def _reason(row: Operation, credential: Credential) -> str:
    """The expected reason. It is the same for all invalid tokens."""
    if credential in UNREADABLE:
        return MISSING
    if credential in WITHOUT_BEARER:
        return WANTED if row.access in CLIENTS else MISSING
    return INVALID
