"""Machines that register themselves with an API token."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from common.auth.internal_tokens import Caller, Deployment
from tests.support.api import Answer
from tests.support.factories import make_caller, make_tenant
from tests.support.services.registry import Registry, serving_registry

PER_HOUR = 5


@pytest.fixture(scope="module")
async def served_registry(mongo_url: str, redis_url: str) -> AsyncIterator[Registry]:
    async with serving_registry(mongo_url, redis_url, enrollments_per_hour=PER_HOUR) as served:
        yield served


def token_caller(token_id: str = "0123456789abcdef", **names: Any) -> Caller:  # noqa: S107  an id, no secret
    return make_caller(**{"username": "token:fleet", "token_id": token_id, **names})


async def enroll(registry: Registry, caller: Caller, name: str = "pc-1") -> Answer:
    return await registry.call(caller, "POST", "enroll_client", data={"client_name": name})


async def test_a_machine_enrolls_with_its_own_address(registry: Registry) -> None:
    caller = token_caller(ip="192.0.2.7")
    answer = await enroll(registry, caller)

    assert answer.status == 201
    assert answer.body["source_url"] == f"{caller.base_url}/source/{answer.body['auth_token']}/winget"
    client = await registry.client(caller, answer.body["client_id"])
    assert (client["client_name"], client["ip"], client["enrolled_by"]) == ("pc-1", "192.0.2.7", caller.token_id)
    assert await registry.identify(caller, answer.body["auth_token"]) == answer.body["client_id"]


async def test_the_same_machine_gets_another_token(registry: Registry) -> None:
    caller = token_caller()
    first = (await enroll(registry, caller)).body
    again = await enroll(registry, replace(caller, ip="198.51.100.3"), "PC-1")

    assert (again.status, again.body["client_id"]) == (200, first["client_id"])
    assert await registry.identify(caller, first["auth_token"]) is None
    assert await registry.identify(caller, again.body["auth_token"]) == first["client_id"]
    assert len((await registry.call(caller, "GET", "get_clients")).body) == 1


async def test_a_machine_keeps_its_ring_when_it_enrolls_again(registry: Registry) -> None:
    caller = token_caller()
    client_id = (await enroll(registry, caller)).body["client_id"]
    await registry.call(caller, "PATCH", "edit_client", client_id, data={"ring": "pilot"})
    await enroll(registry, caller)

    assert (await registry.client(caller, client_id))["ring"] == "pilot"


async def test_a_client_of_another_caller_is_never_changed(registry: Registry) -> None:
    caller, other = token_caller(), {}
    other["pc-added"] = await registry.add_client(caller, "pc-added")
    other["pc-other"] = (await enroll(registry, replace(caller, token_id="fedcba9876543210"), "pc-other")).body

    for name, client in other.items():
        answer = await enroll(registry, caller, name)
        assert (answer.status, answer.body["code"]) == (409, "client_exists"), name
        assert await registry.identify(caller, client["auth_token"]) == client["client_id"], name


async def test_a_disabled_client_does_not_come_back(registry: Registry) -> None:
    caller = token_caller()
    first = (await enroll(registry, caller)).body
    await registry.call(caller, "PATCH", "edit_client", first["client_id"], data={"enabled": "0"})

    assert (await enroll(registry, caller)).status == 409
    await registry.call(caller, "PATCH", "edit_client", first["client_id"], data={"enabled": "1"})
    assert await registry.identify(caller, first["auth_token"]) == first["client_id"]


async def test_a_caller_without_an_api_token_enrolls_nothing(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)
    answer = await enroll(registry, caller)

    assert (answer.status, answer.body["code"]) == (403, "permission_missing")
    assert await registry.identify(caller, added["auth_token"]) == added["client_id"]


async def test_an_enrollment_counts_for_the_limit_of_clients(registry: Registry) -> None:
    caller = token_caller(tenant=make_tenant(max_clients=1))
    await enroll(registry, caller)
    refused = await enroll(registry, caller, "pc-2")

    assert (refused.status, refused.body["code"]) == (403, "client_limit_exceeded")
    assert (await enroll(registry, caller)).status == 200


async def test_a_disabled_client_is_the_reason_also_at_the_limit(registry: Registry) -> None:
    caller = token_caller(tenant=make_tenant(max_clients=1))
    client_id = (await enroll(registry, caller)).body["client_id"]
    await registry.call(caller, "PATCH", "edit_client", client_id, data={"enabled": "0"})

    assert (await enroll(registry, caller)).body["code"] == "client_exists"


async def test_an_api_token_enrolls_a_limited_number_an_hour(registry: Registry) -> None:
    caller = token_caller()
    for number in range(PER_HOUR):
        assert (await enroll(registry, caller, f"pc-{number}")).status == 201
    refused = await enroll(registry, caller)

    assert (refused.status, refused.body["code"]) == (429, "too_many_enrollments")
    assert 0 < int(refused.headers["Retry-After"]) <= 3600
    assert (await enroll(registry, replace(caller, token_id="fedcba9876543210"), "pc-x")).status == 201


async def test_refused_enrollments_count_too(registry: Registry) -> None:
    caller = token_caller()
    await registry.add_client(caller)

    statuses = [(await enroll(registry, caller)).status for _ in range(PER_HOUR + 1)]
    assert statuses == [409] * PER_HOUR + [429]


async def test_a_machine_that_enrolls_twice_at_once_is_one_client(registry: Registry) -> None:
    caller = token_caller()
    answers = await asyncio.gather(*(enroll(registry, caller) for _ in range(PER_HOUR)))

    assert {answer.status for answer in answers} <= {200, 201}
    assert len({answer.body["client_id"] for answer in answers}) == 1


async def test_an_enrollment_resolves_no_name(registry: Registry) -> None:
    caller = token_caller(deployment=Deployment.SINGLE)
    assert (await enroll(registry, caller, "nowhere.invalid")).status == 201


async def test_clients_are_found_by_the_token_that_enrolled_them(registry: Registry) -> None:
    caller = token_caller()
    await registry.add_client(caller, "pc-added")
    await enroll(registry, caller)

    query = {"enrolled_by": caller.token_id}
    found = (await registry.call(caller, "GET", "find_clients", params=query)).body
    assert ([client["client_name"] for client in found["clients"]], found["total"]) == (["pc-1"], 1)
