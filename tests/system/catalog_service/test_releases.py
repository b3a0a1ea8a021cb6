"""Versions on their way through rings and gates, through the gateway."""

from dataclasses import replace

import pytest

from tests.support.api import Answer, read_answer
from tests.support.system.publishing import Published, add_package, catalog, package_id, publish, version_of
from tests.support.system.releases import add_user, release_of, set_policy
from tests.support.system.services import Api
from tests.support.wait import until


@pytest.fixture
async def bob(tenant: Api) -> Api:
    """A second user, an approver."""
    return await add_user(tenant, "bob", "approver")


async def new_version(api: Api) -> Published:
    name = package_id()
    await add_package(api, name)
    return await publish(api, name)


async def done(api: Api, operation: str, uid: str, **data: str) -> Answer:
    answer = await api.call("POST", operation, uid, data=data)
    assert answer.status == 200, answer.body
    return answer


async def fetch(api: Api, url: str, method: str = "GET") -> Answer:
    async with api.session.request(method, url) as response:
        return await read_answer(response)


async def test_clients_see_a_version_when_it_has_entered_their_ring(tenant: Api, bob: Api) -> None:
    await set_policy(tenant, "pilot,everyone")
    published = await new_version(tenant)
    everyone = tenant.anonymous()
    assert published.package_id not in await catalog(everyone)
    await done(bob, "promote_version", published.uid, ring="everyone")
    assert published.package_id in await catalog(everyone)
    await done(bob, "hold_version", published.uid, reason="It deletes files.")
    assert published.package_id not in await catalog(everyone)
    await done(bob, "resume_version", published.uid)
    assert published.package_id in await catalog(everyone)


async def test_a_held_file_is_not_delivered_at_an_address_from_before(tenant: Api, bob: Api) -> None:
    published = await new_version(tenant)
    url = (await version_of(tenant, published))["INSTALLER_URL"]
    assert (await fetch(tenant, url)).status == 200
    for operation in ("hold_version", "roll_back_version"):
        await done(bob, operation, published.uid, reason="It deletes files.")
        assert [(await fetch(tenant, url, method)).status for method in ("GET", "HEAD")] == [404, 404]
        await done(bob, "resume_version", published.uid)
        assert (await fetch(tenant, url)).status == 200


async def test_a_user_who_rotates_a_token_gets_no_second_approval(tenant: Api) -> None:
    await set_policy(tenant, "pilot,everyone", {"pilot": {"approvals": 2}})
    published, carol = await new_version(tenant), await add_user(tenant, "carol")
    created = (await tenant.call("POST", "add_token", data={"name": "approver", "role": "approver"})).body
    rotated = await carol.call("POST", "rotate_token", created["token_id"])

    await done(carol, "approve_version", published.uid)
    await done(with_token(tenant, rotated), "approve_version", published.uid)

    rings = (await release_of(tenant, published.uid))["rings"]
    gates = [gate for ring in rings for gate in ring["gates"] if gate["gate"] == "approval"]
    assert [gate["by"] for gate in gates if gate["state"] == "waiting"] == [["carol"]]


async def test_the_audit_log_has_all_changes_of_a_release(tenant: Api, bob: Api) -> None:
    await set_policy(tenant, "pilot,everyone", {"pilot": {"approvals": 1}})
    published = await new_version(tenant)
    await done(bob, "approve_version", published.uid)
    await done(bob, "hold_version", published.uid, reason="no")
    expected = {("approve_version", "bob"), ("hold_version", "bob"), ("check_gate", ""), ("promote_version", "")}

    async def is_recorded() -> bool:
        entries = (await tenant.call("GET", "get_audit_log")).body
        rows = {(row["operation"], row["user"]) for row in entries if row["target"].get("uid") == published.uid}
        return rows >= expected

    await until(is_recorded)


def with_token(api: Api, created: Answer) -> Api:
    """The same tenant with a new token."""
    assert created.status in {200, 201}, created.body
    return replace(api, headers={"Authorization": f"Bearer {created.body['token']}"})


async def test_the_clients_of_each_ring_are_counted_and_found(tenant: Api) -> None:
    await set_policy(tenant, "pilot,everyone")
    for name, ring in (("pc-1", "pilot"), ("pc-2", "")):
        client = (await tenant.call("POST", "add_client", data={"client_name": name})).body
        await tenant.call("PATCH", "edit_client", client["client_id"], data={"ring": ring})

    numbers = (await tenant.call("GET", "server_information")).body["clients_by_ring"]
    found = (await tenant.call("GET", "find_clients", params={"ring": "pilot"})).body

    assert (numbers, [client["client_name"] for client in found["clients"]]) == ({"pilot": 1, "everyone": 1}, ["pc-1"])
