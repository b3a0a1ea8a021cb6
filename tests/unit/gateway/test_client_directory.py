"""A client that the gateway remembers is one tenant's, with one token, at one address, with one program."""

from dataclasses import replace
from typing import Any, cast

import pytest

from common.auth.callers import Caller
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.client_directory import ClientDirectory, UnknownClient

ACME = Caller(Tenant("acme"), ip="192.0.2.1")


class ClientRegistry:
    """Knows the token "right" of each tenant, and hides a package from each address."""

    def __init__(self) -> None:
        self.asked = 0

    async def json(self, caller: Caller, operation: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.asked += 1
        if body is None:
            return {"package_ids": [f"{caller.tenant_id} {caller.client_id} {caller.ip}"]}
        return {"client_id": f"client of {caller.tenant_id}" if body["auth_token"] == "right" else None}


async def test_each_tenant_token_address_and_program_is_asked_about_once() -> None:
    registry = ClientRegistry()
    known = ClientDirectory(cast("ServiceClient", registry))
    other = replace(ACME, tenant=Tenant("other"))
    for _ in range(2):
        assert await known.identify(ACME, "right", 1, "") == "client of acme"
        assert await known.identify(other, "right", 1, "") == "client of other"
        assert await known.identify(replace(ACME, ip="192.0.2.2"), "right", 1, "") == "client of acme"
        assert await known.identify(ACME, "right", 0, "") == "client of acme"
    assert registry.asked == 4
    assert "right" not in repr(vars(known._ids._entries))


async def test_a_token_that_is_none_is_asked_about_each_time() -> None:
    registry = ClientRegistry()
    known = ClientDirectory(cast("ServiceClient", registry))
    await known.identify(ACME, "right", 1, "")
    for _ in range(2):
        with pytest.raises(UnknownClient):
            await known.identify(ACME, "wrong", 1, "")
    assert registry.asked == 3


async def test_what_is_hidden_is_each_clients_at_each_address() -> None:
    known = ClientDirectory(cast("ServiceClient", ClientRegistry()))
    clients = [
        ACME.as_client("c1"),
        ACME.as_client("c2"),
        replace(ACME, ip="192.0.2.2").as_client("c1"),
        replace(ACME, tenant=Tenant("other")).as_client("c1"),
    ]
    seen = [await known.hidden_from(client, "") for client in clients * 2]
    assert len(set(seen)) == len(clients)
    assert seen[: len(clients)] == seen[len(clients) :]
