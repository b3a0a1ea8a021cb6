"""Blacklist entries and groups that name packages or clients that do not exist."""

import pytest

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.registry import Registry

FORMS = [("add_blacklist_entry", {}), ("add_blacklist_group", {"name": "Tools"})]


@pytest.fixture
def registry_without_package(registry: Registry) -> Registry:
    registry.catalog.unknown = {"Contoso.Launchr": "Contoso.Launcher", "Nothing.Like": ""}
    return registry


async def send(registry: Registry, caller: Caller, operation: str, **form: str) -> Answer:
    return await registry.call(caller, "POST", operation, data=form)


@pytest.mark.parametrize(("operation", "form"), FORMS)
async def test_an_unknown_package_is_refused_with_the_nearest_id(
    registry_without_package: Registry, operation: str, form: dict[str, str]
) -> None:
    caller = make_caller()

    answer = await send(registry_without_package, caller, operation, **form, package_ids="a.a,Contoso.Launchr")

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"] == (
        "package_ids: there is no package 'Contoso.Launchr'; did you mean 'Contoso.Launcher'?"
    )
    for listing in ("get_blacklist", "get_blacklist_groups"):
        assert (await registry_without_package.call(caller, "GET", listing)).body == []


async def test_an_unknown_package_without_a_similar_id_is_refused(registry_without_package: Registry) -> None:
    answer = await send(registry_without_package, make_caller(), "add_blacklist_entry", package_ids="Nothing.Like")

    assert (answer.status, answer.body["detail"]) == (400, "package_ids: there is no package 'Nothing.Like'")


@pytest.mark.parametrize(("operation", "form"), FORMS)
async def test_an_unknown_package_is_accepted_on_request(
    registry_without_package: Registry, operation: str, form: dict[str, str]
) -> None:
    fields = {**form, "package_ids": "Contoso.Launchr", "allow_unknown": "true"}

    answer = await send(registry_without_package, make_caller(), operation, **fields)

    assert answer.status == 201


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


async def test_a_group_alone_needs_no_package_of_its_own(registry_without_package: Registry) -> None:
    caller = make_caller()
    fields = {"name": "Tools", "package_ids": "Contoso.Launchr", "allow_unknown": "true"}
    group = await send(registry_without_package, caller, "add_blacklist_group", **fields)

    entry = await send(registry_without_package, caller, "add_blacklist_entry", group=group.body["group_id"])

    assert entry.status == 201
