"""How many calls between services a publication needs. The number may only fall."""

import pytest

from common.auth.internal_tokens import Caller, Callers
from tests.support.system.publishing import add_package, package_id, publish_in_one_call
from tests.support.system.services import Api

CALLS = 4  # received by services during a publication in one call
REPETITIONS = 4  # Work that a request did not cause runs beside some of them.


async def test_a_publication_needs_few_calls_between_services(tenant: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    name, counts = package_id(), []
    verified: list[str] = []
    verify = Callers.verify

    def counting(self: Callers, token: str, *, operation: str, tenant_id: str) -> Caller:
        verified.append(operation)
        return verify(self, token, operation=operation, tenant_id=tenant_id)

    monkeypatch.setattr(Callers, "verify", counting)  # A service verifies each call once.
    await add_package(tenant, name)
    for number in range(REPETITIONS + 1):
        verified.clear()
        await publish_in_one_call(tenant, name, f"2.{number}", content=bytes(1000))
        counts.append(len(verified))
    assert min(counts[1:]) <= CALLS  # The first one fills caches.
