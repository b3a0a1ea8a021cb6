"""The life of a session token, through the gateway."""

from auth_service.users.throttle_store import NETWORK_FAILURE_LIMIT
from tests.support.factories import KEY
from tests.support.samples.jwt_forgeries import forgeries
from tests.support.system.services import PASSWORD, Api, Services, bearer, single_gateway


async def test_a_token_is_valid_until_logout(either: Api) -> None:
    api = await either.signed_in()
    answer = await api.call("GET", "test")
    assert (answer.status, answer.body) == (200, {"Message": "Its working!"})
    token = api.headers["Authorization"].removeprefix("Bearer ")
    answer = await api.anonymous().call("POST", "logout", data={"token": token})
    assert (answer.status, answer.body) == (200, {"message": "Logout Successful!"})
    assert (await api.call("GET", "test")).status == 401


async def test_every_forged_token_gets_the_same_answer(each: Api) -> None:
    token = each.headers["Authorization"].removeprefix("Bearer ")
    bodies = set()
    for trick, forged in forgeries(token, KEY):
        answer = await each.anonymous().call("GET", "test", headers=bearer(forged or "x"))
        assert answer.status == 401, trick
        bodies.add(str({**answer.body, "request_id": ""}) + answer.headers["WWW-Authenticate"])
    assert len(bodies) == 1
    assert (await each.call("GET", "test")).status == 200


async def test_ending_a_session_does_not_end_another(either: Api) -> None:
    first, second = await either.signed_in(), await either.signed_in()
    await first.call("POST", "logout", data={"token": first.headers["Authorization"].removeprefix("Bearer ")})
    assert (await second.call("GET", "test")).status == 200


async def test_wrong_credentials_get_the_same_error(either: Api) -> None:
    wrong = await either.anonymous().call("POST", "login", data={"username": "admin", "password": "not this one"})
    unknown = await either.anonymous().call("POST", "login", data={"username": "nobody", "password": PASSWORD})
    assert (wrong.status, unknown.status) == (401, 401)
    assert {**wrong.body, "request_id": ""} == {**unknown.body, "request_id": ""}


async def test_login_throttle_counts_all_endpoints_and_forged_addresses(
    tenant: Api, services: Services, redis_url: str
) -> None:
    async with single_gateway(services, redis_url, tenant) as other:
        endpoints = [(api.anonymous(), form) for api in (tenant, other) for form in ("login", "sign_in")]
        for number in range(NETWORK_FAILURE_LIMIT):
            api, form = endpoints[number % len(endpoints)]
            forged = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded"), f"for=198.51.100.{number}")
            answer = await api.call("POST", form, data={"username": f"user-{number}", "password": "x"}, headers=forged)
            assert answer.status == 401
        for api, form in endpoints:
            answer = await api.call("POST", form, data={"username": "admin", "password": PASSWORD})
            assert (answer.status, int(answer.headers["Retry-After"]) > 0) == (429, True)
    await services.failures.forget("address:127.0.0.1")


async def test_a_token_is_invalid_at_another_tenant(tenant: Api, other_tenant: Api, services: Services) -> None:
    stranger = services.api(other_tenant.tenant_id)
    assert (await stranger.call("GET", "test", headers=tenant.headers)).status == 401


async def test_a_changed_password_ends_the_other_sessions(tenant: Api) -> None:
    other = await tenant.signed_in()
    form = {"old_password": PASSWORD, "new_password": "another password"}
    assert (await tenant.call("POST", "change_password", data=form)).status == 200
    assert (await tenant.call("GET", "test")).status == 200
    assert (await other.call("GET", "test")).status == 401
    await tenant.signed_in(password="another password")


async def test_writes_of_administrators_are_in_the_audit_log(tenant: Api) -> None:
    await tenant.call("POST", "add_user", data={"username": "helga", "password": "a long password"})
    entries = (await tenant.call("GET", "get_audit_log")).body
    assert [(entry["operation"], entry["user"]) for entry in entries] == [("add_user", "admin"), ("login", "admin")]
    target = {"username": "helga", "role": "administrator"}
    assert (entries[0]["target"], entries[0]["status"], entries[0]["ip"]) == (target, 201, "127.0.0.1")
