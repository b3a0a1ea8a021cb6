"""Machines that enroll through the gateway with an API token of their fleet."""

from dataclasses import replace

from tests.support.api import Answer
from tests.support.system.seed import add_enroller
from tests.support.system.services import Api, Services, bearer


async def enroll(api: Api, name: str = "pc-1") -> Answer:
    return await api.call("POST", "enroll_client", data={"client_name": name})


async def status_of_client(api: Api, token: str) -> int:
    """The status of a catalog for this client token."""
    return (await api.anonymous().call("POST", "get_packages", data={"auth_token": token})).status


async def test_an_enrolled_machine_reads_the_catalog_until_it_enrolls_again(services: Services) -> None:
    tenant = await services.tenant(client_authentication=True)
    enroller = await add_enroller(tenant)
    first, again = [(await enroll(enroller)).body["auth_token"] for _ in range(2)]

    assert (await status_of_client(tenant, first), await status_of_client(tenant, again)) == (401, 200)


async def test_a_rotated_api_token_still_knows_its_machines(tenant: Api) -> None:
    enroller = await add_enroller(tenant)
    client_id = (await enroll(enroller)).body["client_id"]
    (token,) = (await tenant.call("GET", "get_tokens")).body
    rotated = (await tenant.call("POST", "rotate_token", token["token_id"])).body["token"]
    again = await enroll(replace(tenant, headers=bearer(rotated)))

    assert (again.status, again.body["client_id"]) == (200, client_id)


async def test_another_api_token_of_the_same_name_does_not(tenant: Api) -> None:
    await enroll(await add_enroller(tenant))
    (token,) = (await tenant.call("GET", "get_tokens")).body
    assert (await tenant.call("DELETE", "delete_token", token["token_id"])).status == 200

    assert (await enroll(await add_enroller(tenant))).status == 409


async def test_no_user_enrolls(tenant: Api) -> None:
    answer = await enroll(tenant)
    assert (answer.status, answer.body["code"]) == (403, "permission_missing")
    assert answer.body["detail"] == "You need the permission clients:enroll. Only an API token can have it."


async def test_no_user_becomes_an_enroller(tenant: Api) -> None:
    form = {"username": "ada", "password": "a password of ada", "role": "enroller"}
    for answer in (
        await tenant.call("POST", "add_user", data=form),
        await tenant.call("PATCH", "edit_user", "admin", data={"role": "enroller"}),
    ):
        assert (answer.status, answer.body["params"]["reason"]) == (400, "unknown_role")


async def test_an_enrollment_token_reads_nothing(services: Services) -> None:
    tenant = await services.tenant()
    enroller = await add_enroller(tenant)
    for method, path in (("POST", "get_packages"), ("GET", "get_clients"), ("GET", "server_information")):
        assert (await enroller.call(method, path)).status == 403, path
