"""A cached user of Entra ID has the ring that the tenant's rules give now."""

import time
from typing import Any, cast

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.directories import UserDirectory

Rules = tuple[tuple[str, str], ...]


class AuthService:
    """An auth_service that knows one user, who has every app role: the first rule gives the ring."""

    def __init__(self) -> None:
        self.call_count = 0

    async def json(self, _: Caller, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        assert (operation, body["token"]) == ("identify_entra_user", "a token")
        self.call_count += 1
        rings = [ring for _, ring in body["rules"]]
        return {"ring": rings[0] if rings else "", "expires_at": time.time() + 60}


async def test_a_user_is_fetched_once_for_each_set_of_rules() -> None:
    service, visitor = AuthService(), Caller(Tenant("acme"))
    directory = UserDirectory(cast("ServiceClient", service))
    rows: tuple[tuple[Rules, str], ...] = (
        ((), ""),
        ((("Any", "pilot"),), "pilot"),
        ((("Any", "broad"), ("Any", "pilot")), "broad"),
    )
    for _ in range(2):
        for rules, ring in rows:
            assert await directory.by_entra_token(visitor, "a token", rules, "1") == visitor.as_client("", ring)
    assert service.call_count == len(rows)
