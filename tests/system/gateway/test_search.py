"""The search over packages, versions, clients and users, through the gateway."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.support.system.publishing import add_package, publish_in_one_call
from tests.support.system.services import Api, bearer

KEYS = {"packages": "package_id", "versions": "version", "clients": "client_name", "users": "username"}
HOSTILE = ["$where", ".*", "(", "\\", "'\"", "%00", "[a", "$name_key", "ⅷ", "a" * 128]


async def search(api: Api, text: str) -> Mapping[str, Sequence[str]]:
    """The names of each kind that the search finds."""
    answer = await api.call("GET", "search", params={"text": text})
    assert answer.status == 200, answer.body
    return {kind: [row[key] for row in answer.body[kind]] for kind, key in KEYS.items()}


async def add_token(tenant: Api, role: str, package_ids: str = "*") -> Api:
    form = {"name": role, "role": role, "package_ids": package_ids}
    answer = await tenant.call("POST", "add_token", data=form)
    assert answer.status == 201, answer.body
    return replace(tenant, headers=bearer(answer.body["token"]))


@pytest.fixture
async def filled(tenant: Api) -> Api:
    """A tenant with some of each kind that is called Contoso."""
    for package_id in ("My.Contoso", "Contoso.Plain", "Contoso"):
        await add_package(tenant, package_id)
    for name in ("my-contoso", "contoso-2", "contoso"):
        await tenant.call("POST", "add_client", data={"client_name": name})
    for name in ("not-contoso", "contoso"):
        await tenant.call("POST", "add_user", data={"username": name, "password": "a long password"})
    return tenant


async def test_equal_names_come_first_and_then_those_that_begin_so(filled: Api) -> None:
    assert await search(filled, "CONTOSO") == {
        "packages": ["Contoso", "Contoso.Plain", "My.Contoso"],
        "versions": [],
        "clients": ["contoso", "contoso-2", "my-contoso"],
        "users": ["contoso", "not-contoso"],
    }


async def test_the_last_word_finds_versions_of_the_packages_of_the_others(filled: Api) -> None:
    for package_id, version in (("Contoso.Plain", "9.0.1"), ("Contoso.Plain", "1.9.0"), ("My.Contoso", "9.0")):
        await publish_in_one_call(filled, package_id, version, content=os.urandom(100))

    assert (await search(filled, "9.0"))["versions"] == ["9.0", "9.0.1", "1.9.0"]
    assert (await search(filled, "plain 9"))["versions"] == ["9.0.1", "1.9.0"]


async def test_a_token_for_some_packages_finds_only_these(filled: Api) -> None:
    await publish_in_one_call(filled, "Contoso.Plain", "9.0.1", content=os.urandom(100))
    await publish_in_one_call(filled, "My.Contoso", "9.0.2", content=os.urandom(100))
    token = await add_token(filled, "publisher", "My.*,Other")

    assert (await search(token, "contoso"))["packages"] == ["My.Contoso"]
    assert (await search(token, "9.0"))["versions"] == ["9.0.2"]


async def test_users_are_found_by_those_who_may_read_them(filled: Api) -> None:
    assert (await search(await add_token(filled, "viewer"), "contoso"))["users"] == []


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_text_is_no_pattern_and_no_query(filled: Api, text: str) -> None:
    assert await search(filled, text) == {kind: [] for kind in KEYS}


async def test_another_tenant_finds_nothing(filled: Api, other_tenant: Api) -> None:
    assert await search(other_tenant, "contoso") == {kind: [] for kind in KEYS}
