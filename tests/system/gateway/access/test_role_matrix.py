"""Who may call what: every kind of caller at every operation of the table, as its row says."""

import time
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product
from typing import Any

import jwt
import pytest

from common.caller import Caller, Deployment, sign
from common.sessions import AUDIENCE
from common.signing import ALGORITHM
from common.tenants import Tenant
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.api import Answer
from tests.support.factories import KEY
from tests.support.whole.estate import CLIENTS, UNKNOWN, as_winget, segments, title
from tests.support.whole.services import Api, Services, bearer

INVALID = "The session token is not valid, or no longer."
MISSING = "Send one header `Authorization: Bearer <token>` with a token of /login."
WANTED = "This tenant wants a valid session token or client token."
KINDS = ("multi", "single", "multi, enforcing", "single, enforcing")  # of tenants


class Role(StrEnum):
    """How a caller presents itself."""

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


WITHOUT_BEARER = {Role.CLIENT, Role.ANONYMOUS}
UNREADABLE = {Role.OTHER_SCHEME, Role.TWO_TOKENS}


@dataclass(frozen=True)
class Credentials:
    """What each role sends, beside the session and the client token that are good."""

    api: Api
    enforcing: bool
    session: str
    logged_out: str
    client: str

    def of(self, role: Role, row: Operation) -> dict[str, Any]:
        match role:
            case Role.ANONYMOUS:
                return {}
            case Role.CLIENT:
                request = {"data": {"auth_token": self.client}}
                return as_winget(request) if row.of_winget else request
            case Role.OTHER_SCHEME:
                return {"headers": {"Authorization": f"Basic {self.session}"}}
            case Role.TWO_TOKENS:
                return {"headers": [("Authorization", f"Bearer {self.session}")] * 2}
            case _:
                return {"headers": bearer(self._token(role, row))}

    def _token(self, role: Role, row: Operation) -> str:
        claims = jwt.decode(self.session, KEY, algorithms=[ALGORITHM], audience=AUDIENCE)
        # The keys of these tests are one and the same: only what a token is for keeps the two kinds apart.
        caller = Caller(Tenant(self.api.tenant_id)).as_administrator(claims["sub"], claims["jti"])
        tokens = {
            Role.ADMINISTRATOR: self.session,
            Role.LOGGED_OUT: self.logged_out,
            Role.EXPIRED: jwt.encode({**claims, "exp": int(time.time()) - 600}, KEY, algorithm=ALGORITHM),
            Role.FORGED: jwt.encode(claims, f"not {KEY}", algorithm=ALGORITHM),
            Role.UNSIGNED: jwt.encode(claims, "", algorithm="none"),
            Role.OTHER_AUDIENCE: jwt.encode({**claims, "aud": row.service}, KEY, algorithm=ALGORITHM),
            Role.SERVICE: sign(KEY, caller, service=row.service, operation=row.word),
            Role.CLIENT_AS_BEARER: self.client,
        }
        return tokens[role]


async def credentials(api: Api, gateway: Api, *, enforcing: bool) -> Credentials:
    """What callers of a tenant have; `gateway` is one that gives them out, `api` the one to be tested."""
    session, other = await gateway.signed_in(), await gateway.signed_in()
    logged_out = other.headers["Authorization"].removeprefix("Bearer ")
    await other.call("POST", "logout", data={"token": logged_out})
    answer = await session.call("POST", "add_client", data={"client_name": f"pc-{logged_out[-8:].strip('_-').lower()}"})
    assert answer.status == 201, answer.body
    token = session.headers["Authorization"].removeprefix("Bearer ")
    return Credentials(api.anonymous(), enforcing, token, logged_out, answer.body["auth_token"])


def matrix(*, full: bool) -> list[tuple[str, Operation, Role]]:
    """Every operation and every role, at every kind of tenant; in short at one, so that any two of the three meet."""
    every = product(enumerate(KINDS), enumerate(OPERATIONS), enumerate(Role))
    return [
        (kind, row, role)
        for (place, kind), (number, row), (other, role) in every
        if full or (number + other) % len(KINDS) == place
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tenants_credentials" in metafunc.fixturenames:
        cells = matrix(full=False)
        names = [f"{kind}-{title(row)}-{role}" for kind, row, role in cells]
        metafunc.parametrize(
            ("tenants_credentials", "row", "role"), cells, indirect=["tenants_credentials"], ids=names, scope="module"
        )


def test_the_short_form_leaves_out_no_two_that_meet_in_the_full_one() -> None:
    short, full = matrix(full=False), matrix(full=True)
    assert len(short) * len(KINDS) == len(full)
    for two in combinations(range(3), 2):
        assert {tuple(cell[at] for at in two) for cell in short} == {tuple(cell[at] for at in two) for cell in full}


@pytest.fixture(scope="module")
async def tenants_credentials(
    request: pytest.FixtureRequest, services: Services, enforcing: Api, enforcing_single: Api
) -> Credentials:
    """The callers of each deployment, where clients need not identify themselves and where they must."""
    open_tenant = await services.tenant()
    match request.param:
        case "multi":
            return await credentials(open_tenant, open_tenant, enforcing=False)
        case "multi, enforcing":
            return await credentials(enforcing, enforcing, enforcing=True)
        case "single, enforcing":
            return await credentials(enforcing_single, enforcing, enforcing=True)
        case _:
            single = await services.tenant(Deployment.SINGLE)
            through_multi = await services.api(single.tenant_id).signed_in()
            return await credentials(single, through_multi, enforcing=False)


async def test_an_operation_is_open_to_whom_its_row_says(
    row: Operation, role: Role, tenants_credentials: Credentials
) -> None:
    there = tenants_credentials
    answer = await there.api.call(row.method, *segments(row, UNKNOWN), **there.of(role, row))
    if _is_allowed(row, role, enforcing=there.enforcing):
        assert answer.status != 401
        assert answer.status < 500
    else:
        reason = _reason(row, role)
        if row.of_winget:
            assert answer.body == {"code": 401, "message": reason, "ErrorCode": 401, "ErrorMessage": reason}
        else:
            assert _problem(answer) == (401, "not_authenticated", "Unauthorized", reason)
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def _is_allowed(row: Operation, role: Role, *, enforcing: bool) -> bool:
    match row.access:
        case Access.ADMINISTRATOR:
            return role is Role.ADMINISTRATOR
        case Access.CLIENT | Access.PACKAGE_MANAGER:
            return not enforcing or role in {Role.ADMINISTRATOR, Role.CLIENT}
        case _:
            return True


def _reason(row: Operation, role: Role) -> str:
    """One text for all tokens that are not valid: which check refused them is nobody's business."""
    if role in UNREADABLE:
        return MISSING
    if role in WITHOUT_BEARER:
        return WANTED if row.access in CLIENTS else MISSING
    return INVALID


def _problem(answer: Answer) -> tuple[int, str, str, str]:
    body = dict(answer.body)
    assert body.pop("request_id") == answer.headers["X-Request-Id"]
    assert body.pop("type") == "about:blank"
    assert body.pop("status") == answer.status
    problem = (answer.status, body.pop("code"), body.pop("title"), body.pop("detail"))
    assert not body
    return problem
