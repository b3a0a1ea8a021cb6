"""Packages over HTTP (sections 2.1, 3, 4.2 and 4.3)."""

import asyncio
import base64
import hashlib
import io
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from aiohttp import FormData
from PIL import Image

from common.auth.internal_tokens import HIDDEN, Caller, hidden_digest
from common.errors import Unavailable
from common.http.middleware import AUDIT_HEADER
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog, picture
from tests.support.tables import each

ID = "acme.editor"


def package_form(package_id: str = ID, **fields: str) -> dict[str, str]:
    return {"package_id": package_id, "package_name": "Editor", "package_publisher": "Acme", **fields}


def with_logo(image: bytes, name: str = "Logo", **fields: str) -> FormData:
    form = FormData(package_form(**fields))
    form.add_field(name, io.BytesIO(image), filename="logo.png", content_type="image/png")
    return form


def logo_of(package: dict[str, Any]) -> Image.Image:
    kind, data = package["PACKAGE_LOGO"].split(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data, validate=True)))


async def test_the_catalog_shows_a_package_with_exactly_the_specified_fields(catalog: Catalog) -> None:
    caller = make_caller()
    assert await catalog.packages(caller) == []

    answer = await catalog.call(caller, "POST", "add_package", data=package_form(package_description="Edits\ntext."))

    assert (answer.status, answer.body) == (200, {"Message": "Package was added successfully!"})
    package = {
        "PACKAGE_ID": ID,
        "PACKAGE_NAME": "Editor",
        "PACKAGE_PUBLISHER": "Acme",
        "PACKAGE_DESCRIPTION": "Edits\ntext.",
        "PACKAGE_LOGO": "",
        "PACKAGE_ACTIVE": "1",
        "VERSIONS": [],
        "VERSIONS_UID": [],
    }
    assert await catalog.packages(caller) == [package]
    uid = await catalog.add_version(caller)
    assert await catalog.packages(caller) == [package | {"VERSIONS": ["1.0"], "VERSIONS_UID": [uid]}]


@each(
    ("first", "second"),
    [
        ("Big.Editor", "Big.Editor"),
        ("Big.Editor", "big.editor"),
        ("big.editor", "BIG.Editor"),
        ("Big.Editor", "\uff22ig.Editor"),  # a wide letter
        ("\ufb01le.Tool", "FILE.Tool"),  # a ligature
        ("Stra\u00dfe.Tool", "STRASSE.Tool"),
    ],
)
async def test_an_id_that_looks_like_another_is_answered_401(catalog: Catalog, first: str, second: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller, first)

    answer = await catalog.call(caller, "POST", "add_package", data=package_form(second, package_name="Other"))

    assert (answer.status, answer.body["code"]) == (401, "package_exists")
    assert first in answer.body["detail"]
    assert [package["PACKAGE_NAME"] for package in await catalog.packages(caller)] == ["Editor"]


async def test_of_ids_that_look_alike_one_is_added_at_once(catalog: Catalog) -> None:
    caller, token = make_caller(), make_caller(packages=("b*", "B*"))
    token = replace(token, tenant=caller.tenant)

    async def add(number: int) -> int:
        form = package_form(("Big.Editor", "big.editor", "BIG.editor")[number % 3])
        return (await catalog.call((caller, token)[number % 2], "POST", "add_package", data=form)).status

    assert sorted(await asyncio.gather(*map(add, range(12)))) == [200, *[401] * 11]


async def test_a_package_is_found_by_its_exact_id_only(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, "Big.Editor")

    answers = [
        await catalog.call(caller, "DELETE", "delete_package", "big.editor"),
        await catalog.call(caller, "GET", "get_package_versions", "big.editor"),
        await catalog.post_version(caller, "big.editor"),
    ]

    assert [answer.status for answer in answers] == [404, 404, 404]


@each(
    ("field", "text", "reason"),
    [
        ("package_id", "", "is required"),
        ("package_name", "", "is required"),
        ("package_publisher", "", "is required"),
        ("package_id", "a/b", ""),
        ("package_id", "..", ""),
        ("package_name", "x" * 257, ""),
        ("package_publisher", "x" * 257, ""),
        ("package_description", "x" * 10_001, ""),
        ("Logo", "logo.png", "must be a file"),
    ],
    ids=lambda value: value[:20],
)
async def test_an_invalid_field_is_named_and_never_truncated(
    catalog: Catalog, field: str, text: str, reason: str
) -> None:
    caller = make_caller()

    answer = await catalog.call(caller, "POST", "add_package", data=package_form() | {field: text})

    assert answer.status == 400
    assert answer.body["detail"].startswith(f"{field}: {reason}")
    assert await catalog.packages(caller) == []


@pytest.mark.parametrize(("name", "kind"), [("Logo", "PNG"), ("logo", "JPEG")])
async def test_a_logo_becomes_a_small_png_data_uri(catalog: Catalog, name: str, kind: str) -> None:
    caller = make_caller()

    answer = await catalog.call(caller, "POST", "add_package", data=with_logo(picture(kind, (512, 256)), name))

    assert answer.status == 200
    logo = logo_of((await catalog.packages(caller))[0])
    assert (logo.format, logo.size) == ("PNG", (256, 128))


@pytest.mark.parametrize(
    ("image", "status"),
    [(picture("GIF"), 400), (picture() + bytes(5 << 20), 400), (bytes(7 << 20), 413)],
    ids=["GIF", "too large", "too large form"],
)
async def test_an_invalid_logo_adds_no_package(catalog: Catalog, image: bytes, status: int) -> None:
    caller = make_caller()

    answer = await catalog.call(caller, "POST", "add_package", data=with_logo(image))

    assert answer.status == status
    assert status == 413 or answer.body["detail"].startswith("Logo: ")
    assert await catalog.packages(caller) == []


async def test_an_empty_file_is_no_logo(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.call(caller, "POST", "add_package", data=with_logo(b""))

    assert [package["PACKAGE_LOGO"] for package in await catalog.packages(caller)] == [""]


async def test_packages_are_ordered_by_id(catalog: Catalog) -> None:
    caller = make_caller()
    for package_id in ("b", "C", "a", "b.a"):
        await catalog.add_package(caller, package_id)

    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["C", "a", "b", "b.a"]


async def test_versions_and_their_uids_are_listed_newest_first(catalog: Catalog, caller: Caller) -> None:
    uids = {text: await catalog.add_version(caller, package_version=text) for text in ("1.9", "1.10", "1.10-rc")}

    (package,) = await catalog.packages(caller)
    assert package["VERSIONS"] == ["1.10", "1.10-rc", "1.9"]
    assert package["VERSIONS_UID"] == [uids[text] for text in package["VERSIONS"]]


async def test_an_inactive_package_is_shown_on_request_only(catalog: Catalog, caller: Caller) -> None:
    answer = await catalog.call(caller, "PATCH", "set_package_active", ID, data={"package_active": "0"})

    assert (answer.status, answer.body) == (200, {"Message": "Package was updated successfully!"})
    assert await catalog.packages(caller) == []
    assert await catalog.packages(caller, include_disabled="false") == []
    assert [package["PACKAGE_ACTIVE"] for package in await catalog.packages(caller, include_disabled="true")] == ["0"]
    await catalog.call(caller, "PATCH", "set_package_active", ID, data={"package_active": "1"})
    assert [package["PACKAGE_ACTIVE"] for package in await catalog.packages(caller)] == ["1"]


async def test_active_and_include_disabled_are_yes_or_no(catalog: Catalog, caller: Caller) -> None:
    for data in ({}, {"package_active": ""}, {"package_active": "perhaps"}):
        assert (await catalog.call(caller, "PATCH", "set_package_active", ID, data=data)).status == 400
    answer = await catalog.call(caller, "POST", "get_packages", params={"include_disabled": "perhaps"})
    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "include_disabled")


@pytest.fixture
async def hiding(catalog: Catalog) -> Caller:
    """An administrator of a tenant with the packages a and b, whose clients do not see b."""
    caller = make_caller()
    for package_id in ("a", "b"):
        await catalog.add_package(caller, package_id)
    catalog.stubs.hidden[caller.tenant_id] = ["b", "unknown"]
    return caller


async def test_a_client_does_not_see_blacklisted_packages(catalog: Catalog, hiding: Caller) -> None:
    assert [package["PACKAGE_ID"] for package in await catalog.packages(hiding.as_client("a client"))] == ["a"]
    assert len(await catalog.packages(hiding)) == 2


async def test_a_known_digest_of_hidden_packages_asks_client_registry_once(catalog: Catalog, hiding: Caller) -> None:
    headers = {HIDDEN: hidden_digest(["b", "unknown"])}

    for client_id in ("first", "second"):
        answer = await catalog.call(hiding.as_client(client_id), "POST", "get_packages", headers=headers)
        assert [package["PACKAGE_ID"] for package in answer.body] == ["a"]

    assert catalog.stubs.operations.count("hidden_packages") == 1


async def test_a_catalog_never_follows_an_unknown_digest(catalog: Catalog, hiding: Caller) -> None:
    headers = {HIDDEN: hidden_digest(["something else"])}

    answer = await catalog.call(hiding.as_client("c1"), "POST", "get_packages", headers=headers)

    assert [package["PACKAGE_ID"] for package in answer.body] == ["a"]
    assert answer.headers[HIDDEN] == hidden_digest(["b", "unknown"])


async def test_a_client_with_an_unknown_blacklist_gets_no_catalog(catalog: Catalog, hiding: Caller) -> None:
    catalog.stubs.refusal = Unavailable("away")

    answer = await catalog.call(hiding.as_client("a client"), "POST", "get_packages")

    assert (answer.status, answer.headers["Retry-After"]) == (500, "5")
    assert len(await catalog.packages(hiding)) == 2


async def test_a_catalog_of_any_size_needs_at_most_four_queries(catalog: Catalog) -> None:
    caller = make_caller()
    for number in range(12):
        await catalog.add_package(caller, f"package.{number}")
    await catalog.add_version(caller, "package.7")
    async with catalog.queries() as queries:
        assert len(await catalog.packages(caller.as_client("a client"))) == 12

    assert 1 <= len(queries) <= 4  # of the revision, the rings, the packages, the versions


async def test_an_edit_changes_the_sent_fields_only(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.call(caller, "POST", "add_package", data=with_logo(picture(), package_description="Edits."))
    (before,) = await catalog.packages(caller)

    for data in ({"package_name": "New"}, None):
        answer = await catalog.call(caller, "PATCH", "edit_package", ID, data=data)

        assert (answer.status, answer.body) == (200, {"Message": "Package was updated successfully!"})
        assert await catalog.packages(caller) == [before | {"PACKAGE_NAME": "New"}]


async def test_every_field_of_a_package_can_be_edited(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_description="Edits.")
    form = FormData({"package_name": "N", "package_publisher": "P", "package_description": ""})
    form.add_field("Logo", picture(size=(3, 5)), filename="logo.png")

    await catalog.call(caller, "PATCH", "edit_package", ID, data=form)

    (package,) = await catalog.packages(caller)
    assert (package["PACKAGE_NAME"], package["PACKAGE_PUBLISHER"], package["PACKAGE_DESCRIPTION"]) == ("N", "P", "")
    assert logo_of(package).size == (3, 5)


@each("field", ["package_name", "package_publisher"])
async def test_a_name_cannot_be_removed(catalog: Catalog, caller: Caller, field: str) -> None:
    answer = await catalog.call(caller, "PATCH", "edit_package", ID, data={field: ""})

    assert (answer.status, answer.body["detail"]) == (400, f"{field}: is required")


WRITES: list[tuple[str, str, dict[str, str]]] = [
    ("PATCH", "edit_package", {"package_name": "New"}),
    ("PATCH", "set_package_active", {"package_active": "0"}),
    ("DELETE", "delete_package_version", {"versions_uids": str(UUID(int=7))}),
    ("DELETE", "delete_package", {}),
]


@each(("method", "operation", "data"), [*WRITES, ("GET", "get_package_versions", {})])
async def test_an_unknown_package_is_answered_404(
    catalog: Catalog, method: str, operation: str, data: dict[str, str]
) -> None:
    for package_id in ("unknown", "a/b", "..%2f", "\0", "x" * 129, "ö", "{}", "%"):
        answer = await catalog.call(make_caller(), method, operation, package_id, data=data or None)
        assert (answer.status, answer.body["code"]) == (404, "package_not_found"), package_id


@each(("method", "operation", "data"), WRITES)
async def test_a_write_has_an_audit_target(
    catalog: Catalog, caller: Caller, method: str, operation: str, data: dict[str, str]
) -> None:
    refused = await catalog.call(make_caller(), method, operation, ID, data=data or None)
    done = await catalog.call(caller, method, operation, ID, data=data or None)

    assert refused.audit_target["package_id"] == done.audit_target["package_id"] == ID


async def test_a_path_that_is_not_utf_8_names_no_package(catalog: Catalog) -> None:
    answer = await catalog.call_raw(make_caller(), "DELETE", "delete_package", "%FF%ED%A0%80")

    assert (answer.status, answer.body["code"]) == (404, "package_not_found")


@each("package_id", ["a b", "日本.editor", "a{b}", "a%2Fb", "a+b&c=d;e", "A\u0308"])
async def test_a_package_is_found_by_any_valid_id(catalog: Catalog, package_id: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_id)

    assert await catalog.versions(caller, package_id) == []
    assert (await catalog.call(caller, "DELETE", "delete_package", package_id)).status == 200


async def test_a_package_is_deleted_with_its_versions_and_files(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller, "kept")
    gone = [await catalog.add_version(caller, package_version=str(number)) for number in range(3)]
    kept_version = await catalog.add_version(caller, "kept")

    answer = await catalog.call(caller, "DELETE", "delete_package", ID)

    assert (answer.status, answer.body) == (200, {"Message": "Package was deleted successfully!"})
    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["kept"]
    assert catalog.stubs.linked_uids == {kept_version}
    for uid in gone:
        assert (await catalog.call(caller, "GET", "get_specific_package_version", uid)).status == 404


@pytest.fixture
async def halfway(catalog: Catalog, caller: Caller) -> str:
    """A version of a package whose deletion waits for upload_service. Returns its uid."""
    uid = await catalog.add_version(caller)
    catalog.stubs.refusal = Unavailable("away")
    assert (await catalog.call(caller, "DELETE", "delete_package", ID)).status == 500
    return uid


async def test_a_package_whose_files_cannot_be_removed_yet_is_hidden_at_once(
    catalog: Catalog, caller: Caller, halfway: str
) -> None:
    assert await catalog.packages(caller, include_disabled="1") == []
    for method, operation, name, status in (
        ("GET", "get_package_versions", ID, 404),
        ("GET", "get_specific_package_version", halfway, 404),
        ("GET", "get_version_details", halfway, 404),
        ("GET", "get_package_details", ID, 404),
        ("PATCH", "edit_package", ID, 404),
    ):
        assert (await catalog.call(caller, method, operation, name)).status == status, operation
    assert (await catalog.post_version(caller, package_version="2")).status == 404
    assert (await catalog.call(caller, "POST", "add_package", data=package_form())).status == 401


@pytest.mark.usefixtures("halfway")
async def test_deleting_a_package_again_after_a_failure_finishes_it(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.refusal = None

    statuses = [(await catalog.call(caller, "DELETE", "delete_package", ID)).status for _ in range(2)]

    assert statuses == [200, 404]
    assert catalog.stubs.linked_uids == set()
    assert await catalog.count_records(caller) == 0


@pytest.mark.usefixtures("halfway")
async def test_an_interrupted_deletion_finishes_by_itself(catalog: Catalog, caller: Caller) -> None:
    await catalog.age_and_sweep()
    assert await catalog.count_records(caller) == 2
    catalog.stubs.refusal = None

    await catalog.age_and_sweep()

    assert catalog.stubs.linked_uids == set()
    assert await catalog.count_records(caller) == 0


async def test_a_package_added_again_has_no_data_of_the_old_one(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.call(caller, "POST", "add_package", data=with_logo(picture(), package_description="Old."))
    await catalog.add_version(caller)
    await catalog.call(caller, "DELETE", "delete_package", ID)

    await catalog.add_package(caller)

    (package,) = await catalog.packages(caller)
    assert (package["PACKAGE_LOGO"], package["PACKAGE_DESCRIPTION"], package["VERSIONS"]) == ("", "", [])
    await catalog.add_version(caller)


async def test_an_edit_has_the_changes_before_and_after(catalog: Catalog, caller: Caller) -> None:
    long = "x" * 257

    edited = {"package_name": "New", "package_description": long}
    answer = await catalog.call(caller, "PATCH", "edit_package", ID, data=edited)
    hidden = await catalog.call(caller, "PATCH", "set_package_active", ID, data={"package_active": "0"})

    digest = f"sha256:{hashlib.sha256(long.encode()).hexdigest()}"
    changes = json.loads(answer.headers[AUDIT_HEADER])["changes"]
    assert {name: after for name, (_, after) in changes.items()} == {"name": "New", "description": digest}
    assert changes["name"] == ["Editor", "New"]
    assert json.loads(hidden.headers[AUDIT_HEADER])["changes"] == {"active": ["1", "0"]}
