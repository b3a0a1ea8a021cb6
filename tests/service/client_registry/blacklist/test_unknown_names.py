"""Blacklist entries that name clients that do not exist."""

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.registry import Registry


async def send(registry: Registry, caller: Caller, operation: str, **form: str) -> Answer:
    return await registry.call(caller, "POST", operation, data=form)


async def test_a_client_is_named_in_any_letter_case(registry: Registry) -> None:
    caller = make_caller()
    client = await registry.add_client(caller, "pc-0042")

    answer = await send(registry, caller, "add_blacklist_entry", hostname="PC-0042", package_ids="a.a")

    (entry,) = (await registry.call(caller, "GET", "get_blacklist")).body
    assert (answer.status, entry["client_id"]) == (201, client["client_id"])


async def test_an_unknown_client_name_is_refused_with_the_nearest(registry: Registry) -> None:
    caller = make_caller()
    await registry.add_client(caller, "PC-0042")

    answer = await send(registry, caller, "add_blacklist_entry", hostname="pc-004", package_ids="a.a")

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"] == "hostname: there is no client 'pc-004'; did you mean 'PC-0042'?"


async def test_a_client_name_beside_a_client_id_is_refused(registry: Registry) -> None:
    caller = make_caller()
    client = await registry.add_client(caller, "pc-1")

    form = {"hostname": "pc-1", "client_id": client["client_id"], "package_ids": "a.a"}
    answer = await send(registry, caller, "add_blacklist_entry", **form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
