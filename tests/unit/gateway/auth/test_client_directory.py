"""A cached client has one tenant, one token, one address and one program."""

from dataclasses import replace
from typing import Any, cast

import pytest

from common.auth.internal_tokens import Caller
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.directories import ClientDirectory, UnknownClient

ACME = Caller(Tenant("acme"), ip="192.0.2.1")


class ClientRegistry:
    """A client_registry with the token "right" in each tenant. It hides one package per address."""

    def __init__(self) -> None:
        self.call_count = 0

    async def json(self, caller: Caller, operation: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.call_count += 1
        if body is None:
            return {"package_ids": [f"{caller.tenant_id} {caller.client_id} {caller.ip}"]}
        client_id = f"client of {caller.tenant_id}" if body["auth_token"] == "right" else None
        return {"client_id": client_id, "ring": "pilot"}


async def test_each_tenant_token_address_and_program_is_fetched_once() -> None:
    registry = ClientRegistry()
    directory = ClientDirectory(cast("ServiceClient", registry))
    other, elsewhere = replace(ACME, tenant=Tenant("other")), replace(ACME, ip="192.0.2.2")
    for _ in range(2):
        for visitor, program in ((ACME, 1), (other, 1), (elsewhere, 1), (ACME, 0)):
            client = visitor.as_client(f"client of {visitor.tenant_id}", "pilot")
            assert await directory.identify(visitor, "right", program, "") == client
    assert registry.call_count == 4
    assert "right" not in repr(vars(directory._known._entries))


async def test_an_unknown_token_is_looked_up_each_time() -> None:
    registry = ClientRegistry()
    directory = ClientDirectory(cast("ServiceClient", registry))
    await directory.identify(ACME, "right", 1, "")
    for _ in range(2):
        with pytest.raises(UnknownClient):
            await directory.identify(ACME, "wrong", 1, "")
    assert registry.call_count == 3


async def test_hidden_packages_depend_on_client_and_address() -> None:
    directory = ClientDirectory(cast("ServiceClient", ClientRegistry()))
    clients = [
        ACME.as_client("c1"),
        ACME.as_client("c2"),
        replace(ACME, ip="192.0.2.2").as_client("c1"),
        replace(ACME, tenant=Tenant("other")).as_client("c1"),
    ]
    hidden_ids = [await directory.hidden_from(client, "") for client in clients * 2]
    assert len(set(hidden_ids)) == len(clients)
    assert hidden_ids[: len(clients)] == hidden_ids[len(clients) :]


async def test_a_known_form_is_of_one_tenant_address_and_version() -> None:
    directory, form = ClientDirectory(cast("ServiceClient", ClientRegistry())), b"auth_token=right&client=1"
    assert directory.known(ACME, form, "1") is None
    client = ACME.as_client("client of acme", "pilot")
    assert await directory.identify(ACME, "right", 1, "1", form=form) == client

    assert directory.known(ACME, form, "1") == client
    assert directory.known(ACME, b"auth_token=right&client=2", "1") is None
    assert directory.known(ACME, form, "2") is None
    assert directory.known(ACME, form, None) is None
    assert directory.known(replace(ACME, ip="192.0.2.2"), form, "1") is None
    assert directory.known(replace(ACME, tenant=Tenant("other")), form, "1") is None
    assert "right" not in repr(vars(directory._forms))


async def test_the_form_of_an_unknown_token_is_not_remembered() -> None:
    directory = ClientDirectory(cast("ServiceClient", ClientRegistry()))
    with pytest.raises(UnknownClient):
        await directory.identify(ACME, "wrong", 1, "1", form=b"auth_token=wrong&client=1")
    assert directory.known(ACME, b"auth_token=wrong&client=1", "1") is None
