"""A cached user of Entra ID has the ring that the tenant's rules give now."""

import time
from dataclasses import replace
from typing import Any, cast

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient
from common.tenants import RingRule, Tenant
from gateway.auth.directories import UserDirectory

ACME = Tenant("acme", rings=("pilot", "broad", "everyone"))


class AuthService:
    """An auth_service that knows one app role: the first rule gives its ring."""

    def __init__(self) -> None:
        self.call_count = 0

    async def json(self, caller: Caller, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        assert (operation, body) == ("identify_entra_user", {"token": "a token"})
        self.call_count += 1
        rings = [rule.ring for rule in caller.tenant.ring_rules if rule.app_role]
        return {"ring": rings[0] if rings else "", "expires_at": time.time() + 60}


async def test_a_user_is_fetched_once_for_each_set_of_rules() -> None:
    service = AuthService()
    directory = UserDirectory(cast("ServiceClient", service))
    pilot, broad = RingRule("pilot", app_role="Any"), RingRule("broad", app_role="Any")
    network = RingRule("broad", network="127.0.0.0/8")
    rows = (
        ((), ""),
        ((pilot,), "pilot"),
        ((broad, pilot), "broad"),
        ((network,), "broad"),
        ((network, pilot), "pilot"),
    )
    for _ in range(2):
        for rules, ring in rows:
            visitor = Caller(replace(ACME, ring_rules=rules))
            assert await directory.by_entra_token(visitor, "a token", "1") == visitor.as_client("", ring)
    assert service.call_count == len(rows)


async def test_a_ring_that_the_tenant_lacks_is_the_last_one() -> None:
    directory = UserDirectory(cast("ServiceClient", AuthService()))
    rules = (RingRule("pilot", app_role="Any"),)
    for rings, ring in ((ACME.rings, "pilot"), (("broad", "everyone"), ""), ((), "")):
        visitor = Caller(replace(ACME, rings=rings, ring_rules=rules))
        assert (await directory.by_entra_token(visitor, "a token", "1")).ring == ring
