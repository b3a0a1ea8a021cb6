"""Clients through client_registry's own door (section 4.6)."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from tests.factories import make_caller, make_tenant
from tests.service.registry_fixtures import Registry, serving_registry


@pytest.fixture(scope="module")
async def registry(mongo_url: str) -> AsyncIterator[Registry]:
    async with serving_registry(mongo_url) as served:
        yield served


async def test_a_client_is_added_with_an_id_and_a_token(registry: Registry) -> None:
    answer = await registry.call(make_caller(), "POST", "add_client", data={"client_name": "pc-1.example.com"})

    assert answer.status == 201
    assert answer.body["Message"] == "Client was added successfully!"
    assert UUID(answer.body["client_id"]) != UUID(answer.body["auth_token"])


async def test_a_token_names_its_client(registry: Registry) -> None:
    caller = make_caller(make_tenant())
    added = await registry.add_client(caller)

    assert await registry.identify(caller, added["auth_token"]) == added["client_id"]


async def test_a_package_hidden_from_a_client_is_named(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)
    await registry.call(
        caller, "POST", "add_blacklist_entry", data={"client_id": added["client_id"], "package_ids": "a.b"}
    )

    assert await registry.hidden_from(caller, added["client_id"]) == ["a.b"]


async def test_before_the_first_release_the_version_is_zero(registry: Registry) -> None:
    assert (await registry.call(make_caller(), "POST", "client_version")).body == {"Version": "0.0.0.0"}
