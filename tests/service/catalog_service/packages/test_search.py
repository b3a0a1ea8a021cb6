"""The package search of administrators, and logos as images, over HTTP."""

import io
from typing import Any

import pytest
from aiohttp import FormData
from PIL import Image

from common.auth.internal_tokens import Caller
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog, picture
from tests.support.tables import each

PACKAGES = {
    "Zed.Editor": {"package_name": "zed", "package_publisher": "Ümlaut GmbH"},
    "acme.a.b": {"package_name": "Anvil (50 %)", "package_publisher": "Acme"},
    "acme.axb": {"package_name": "Trap", "package_publisher": "acme"},
}


@pytest.fixture
async def caller(catalog: Catalog) -> Caller:
    """The administrator of a tenant with three packages, one of them inactive."""
    caller = make_caller()
    for package_id, fields in PACKAGES.items():
        await catalog.add_package(caller, package_id, **fields)
    await catalog.call(caller, "PATCH", "set_package_active", "acme.axb", data={"package_active": "0"})
    return caller


async def find(catalog: Catalog, caller: Caller, **query: str) -> tuple[list[str], int]:
    """The ids in a `find_packages` response, and the total."""
    answer = await catalog.call(caller, "GET", "find_packages", params=query)
    assert answer.status == 200, answer.body
    return [package["package_id"] for package in answer.body["packages"]], answer.body["total"]


async def test_results_have_the_newest_version_and_no_long_fields(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_version(caller, "acme.a.b", package_version="1.10")
    await catalog.add_version(caller, "acme.a.b", package_version="1.9")

    answer = await catalog.call(caller, "GET", "find_packages", params={"text": "anvil"})

    assert answer.body == {
        "packages": [
            {
                "package_id": "acme.a.b",
                "package_name": "Anvil (50 %)",
                "package_publisher": "Acme",
                "package_active": "1",
                "versions": 2,
                "newest_version": "1.10",
                "package_logo": "",
                "winget_refusal": None,
            }
        ],
        "total": 1,
    }


@each(
    ("package_ids", "refusal"),
    [
        (["Zed.Editor", "zed.editr", "acme.b"], "there is no package 'zed.editr'; did you mean 'Zed.Editor'?"),
        (["Nothing.Like.It"], "there is no package 'Nothing.Like.It'"),
        (["Zed.Editor", "acme.axb"], ""),
    ],
)
async def test_the_first_unknown_package_is_refused_with_its_most_similar_id(
    catalog: Catalog, caller: Caller, package_ids: list[str], refusal: str
) -> None:
    answer = await catalog.call(caller, "POST", "check_names", json={"package_ids": package_ids})

    assert answer.status == (400 if refusal else 200)
    assert answer.body.get("detail") == (f"package_ids: {refusal}" if refusal else None)


@each(
    ("query", "expected"),
    [
        ({"text": "ED.ED"}, ["Zed.Editor"]),
        ({"text": "a.b"}, ["acme.a.b"]),
        ({"text": "(50 %)"}, ["acme.a.b"]),
        ({"text": "üMLAUT"}, ["Zed.Editor"]),
        ({"text": "ACME"}, ["acme.a.b", "acme.axb"]),
        ({"text": ".*"}, []),
        ({"text": "$"}, []),
        ({}, ["acme.a.b", "acme.axb", "Zed.Editor"]),
        ({"descending": "1"}, ["Zed.Editor", "acme.axb", "acme.a.b"]),
        ({"sort": "name"}, ["acme.a.b", "acme.axb", "Zed.Editor"]),
        ({"sort": "publisher"}, ["acme.a.b", "acme.axb", "Zed.Editor"]),
        ({"sort": "active"}, ["acme.axb", "Zed.Editor", "acme.a.b"]),
        ({"active": "1"}, ["acme.a.b", "Zed.Editor"]),
        ({"active": "0"}, ["acme.axb"]),
        ({"package_id": "Zed.Editor,acme.axb,no.package"}, ["acme.axb", "Zed.Editor"]),
    ],
)
async def test_packages_are_found_by_literal_text_order_and_state(
    catalog: Catalog, caller: Caller, query: dict[str, str], expected: list[str]
) -> None:
    assert await find(catalog, caller, **query) == (expected, len(expected))


async def test_a_page_has_the_requested_size_and_the_total(catalog: Catalog, caller: Caller) -> None:
    assert await find(catalog, caller, limit="2") == (["acme.a.b", "acme.axb"], 3)
    assert await find(catalog, caller, limit="2", offset="2") == (["Zed.Editor"], 3)
    assert await find(catalog, caller, offset="2147483647") == ([], 3)


@each(
    "query",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"offset": "-1"},
        {"sort": "logo"},
        {"active": "yes"},
        {"descending": "2"},
        {"text": "a\0"},
        {"text": "a" * 257},
    ],
)
async def test_an_invalid_search_parameter_is_named(catalog: Catalog, caller: Caller, query: dict[str, str]) -> None:
    answer = await catalog.call(caller, "GET", "find_packages", params=query)
    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, *query)


async def test_packages_of_another_tenant_or_under_deletion_are_not_found(catalog: Catalog, caller: Caller) -> None:
    await catalog.store.packages.begin_deletion(caller.tenant_id, "Zed.Editor")
    assert await find(catalog, caller) == (["acme.a.b", "acme.axb"], 2)
    assert await find(catalog, make_caller()) == ([], 0)


async def logo_of(catalog: Catalog, caller: Caller) -> Any:
    answer = await catalog.call(caller, "GET", "find_packages", params={"text": "acme.axb"})
    return answer.body["packages"][0]["package_logo"]


async def test_a_logo_is_an_image_that_caches_may_store(catalog: Catalog, caller: Caller) -> None:
    async def draw(size: tuple[int, int]) -> None:
        form = FormData()
        form.add_field("Logo", picture(size=size), filename="logo.png")
        assert (await catalog.call(caller, "PATCH", "edit_package", "acme.axb", data=form)).status == 200

    await draw((3, 5))
    logo = await logo_of(catalog, caller)
    answer_with_digest = await catalog.call(
        caller, "GET", "get_package_logo", "acme.axb", params={"package_logo": logo}
    )
    assert Image.open(io.BytesIO(answer_with_digest.body)).size == (3, 5)
    assert answer_with_digest.headers["Content-Type"] == "image/png"
    assert answer_with_digest.headers["Cache-Control"] == "private, max-age=31536000, immutable"

    conditions = {"If-None-Match": answer_with_digest.headers["ETag"]}
    assert (await catalog.call(caller, "GET", "get_package_logo", "acme.axb", headers=conditions)).status == 304

    await draw((5, 3))
    assert await logo_of(catalog, caller) != logo
    changed = await catalog.call(
        caller, "GET", "get_package_logo", "acme.axb", params={"package_logo": logo}, headers=conditions
    )
    assert (changed.status, changed.headers["Cache-Control"]) == (200, "private, no-cache")


@each(("package_id", "code"), [("acme.axb", "logo_not_found"), ("unknown", "package_not_found")])
async def test_a_missing_logo_is_reported(catalog: Catalog, caller: Caller, package_id: str, code: str) -> None:
    answer = await catalog.call(caller, "GET", "get_package_logo", package_id)
    assert (answer.status, answer.body["code"]) == (404, code)
