"""API tokens: what a pipeline may do with one, and what it may not."""

from typing import Any

from tests.support.system.services import Api, Services, bearer


async def add_token(tenant: Api, **fields: Any) -> tuple[str, dict[str, Any]]:
    """The id of a new token, and the arguments of a call with it."""
    answer = await tenant.call("POST", "add_token", data={"name": "ci", "role": "publisher", **fields})
    assert answer.status == 201, answer.body
    return answer.body["token_id"], {"headers": bearer(answer.body["token"])}


async def test_a_token_publishes_only_the_packages_of_its_patterns(services: Services) -> None:
    tenant = await services.tenant()
    _, pipeline = await add_token(tenant, package_ids="Acme.*")
    form = {"package_name": "App", "package_publisher": "Acme", "package_description": ""}
    caller = tenant.anonymous()

    allowed = await caller.call("POST", "add_package", data={"package_id": "Acme.App", **form}, **pipeline)
    refused = await caller.call("POST", "add_package", data={"package_id": "Other.App", **form}, **pipeline)

    assert allowed.status == 200
    assert (refused.status, refused.body["code"]) == (403, "permission_missing")


async def test_a_deleted_token_ends_at_once(services: Services) -> None:
    tenant = await services.tenant()
    token_id, pipeline = await add_token(tenant)
    caller = tenant.anonymous()
    assert (await caller.call("GET", "test", **pipeline)).status == 200

    assert (await tenant.call("DELETE", "delete_token", token_id)).status == 200

    assert (await caller.call("GET", "test", **pipeline)).status == 401


async def test_a_token_of_one_role_lacks_the_permissions_of_others(services: Services) -> None:
    tenant = await services.tenant()
    _, pipeline = await add_token(tenant)

    answer = await tenant.anonymous().call("GET", "get_audit_log", **pipeline)

    assert (answer.status, answer.body["code"]) == (403, "permission_missing")


async def test_a_rotated_token_counts_during_the_overlap(services: Services) -> None:
    tenant = await services.tenant()
    token_id, old = await add_token(tenant)

    answer = await tenant.call("POST", "rotate_token", token_id, data={"overlap_hours": "1"})

    new = {"headers": bearer(answer.body["token"])}
    for pipeline in (old, new):
        assert (await tenant.anonymous().call("GET", "test", **pipeline)).status == 200
