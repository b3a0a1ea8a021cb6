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

from common.auth.internal_tokens import HIDDEN, hidden_digest
from common.errors import Unavailable
from common.http.middleware import AUDIT_HEADER
from tests.support.factories import make_caller, make_tenant
from tests.support.services.catalog import Catalog, picture
from tests.support.tables import each


def package_form(package_id: str = "acme.editor", **fields: str) -> dict[str, str]:
    return {"package_id": package_id, "package_name": "Editor", "package_publisher": "Acme", **fields}


def with_logo(image: bytes, name: str = "Logo", **fields: str) -> FormData:
    form = FormData(package_form(**fields))
    form.add_field(name, io.BytesIO(image), filename="logo.png", content_type="image/png")
    return form


def logo_of(package: dict[str, Any]) -> Image.Image:
    kind, data = package["PACKAGE_LOGO"].split(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data, validate=True)))


@pytest.mark.parametrize("multipart", [True, False])
async def test_a_package_is_added(catalog: Catalog, multipart: bool) -> None:
    form = FormData(package_form(package_description="Edits\ntext."), default_to_multipart=multipart)

    answer = await catalog.call(make_caller(), "POST", "add_package", data=form)

    assert answer.status == 200
    assert answer.body == {"Message": "Package was added successfully!"}


async def test_the_catalog_shows_a_package_with_exactly_the_specified_fields(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_description="Edits\ntext.")
    uid = await catalog.add_version(caller)

    assert await catalog.packages(caller) == [
        {
            "PACKAGE_ID": "acme.editor",
            "PACKAGE_NAME": "Editor",
            "PACKAGE_PUBLISHER": "Acme",
            "PACKAGE_DESCRIPTION": "Edits\ntext.",
            "PACKAGE_LOGO": "",
            "PACKAGE_ACTIVE": "1",
            "VERSIONS": ["1.0"],
            "VERSIONS_UID": [uid],
        }
    ]


async def test_a_package_without_versions_has_empty_lists(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)

    (package,) = await catalog.packages(caller)
    assert (package["VERSIONS"], package["VERSIONS_UID"]) == ([], [])


async def test_a_tenant_without_packages_has_an_empty_catalog(catalog: Catalog) -> None:
    assert await catalog.packages(make_caller()) == []


async def test_a_duplicate_package_id_is_answered_401(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)

    answer = await catalog.call(caller, "POST", "add_package", data=package_form(package_name="Other"))

    assert (answer.status, answer.body["code"]) == (401, "package_exists")
    assert [package["PACKAGE_NAME"] for package in await catalog.packages(caller)] == ["Editor"]


@each(
    ("first", "second"),
    [
        ("Big.Editor", "big.editor"),
        ("big.editor", "BIG.Editor"),
        ("Big.Editor", "\uff22ig.Editor"),  # a wide letter
        ("\ufb01le.Tool", "FILE.Tool"),  # a ligature
        ("Stra\u00dfe.Tool", "STRASSE.Tool"),
    ],
)
async def test_an_id_that_looks_like_another_is_taken(catalog: Catalog, first: str, second: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller, first)

    answer = await catalog.call(caller, "POST", "add_package", data=package_form(package_id=second))

    assert (answer.status, answer.body["code"]) == (401, "package_exists")
    assert first in answer.body["detail"]


async def test_of_ids_that_look_alike_one_is_added_at_once(catalog: Catalog) -> None:
    caller, token = make_caller(), make_caller(packages=("b*", "B*"))
    token = replace(token, tenant=caller.tenant)

    async def add(number: int) -> int:
        form = package_form(package_id=("Big.Editor", "big.editor", "BIG.editor")[number % 3])
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


async def test_two_tenants_may_have_the_same_package_id(catalog: Catalog) -> None:
    first, second = make_caller(), make_caller()
    await catalog.add_package(first, package_name="One")
    await catalog.add_package(second, package_name="Other")

    assert [package["PACKAGE_NAME"] for package in await catalog.packages(first)] == ["One"]


@pytest.mark.parametrize("missing", ["package_id", "package_name", "package_publisher"])
async def test_a_missing_field_is_named(catalog: Catalog, missing: str) -> None:
    answer = await catalog.call(make_caller(), "POST", "add_package", data=package_form(**{missing: ""}))

    assert (answer.status, answer.body["detail"]) == (400, f"{missing}: is required")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("package_id", "a/b"),
        ("package_id", ".."),
        ("package_name", "x" * 257),
        ("package_publisher", "x" * 257),
        ("package_description", "x" * 10_001),
    ],
)
async def test_invalid_text_is_refused_and_never_truncated(catalog: Catalog, field: str, text: str) -> None:
    caller = make_caller()

    answer = await catalog.call(caller, "POST", "add_package", data=package_form(**{field: text}))

    assert answer.status == 400
    assert answer.body["detail"].startswith(f"{field}: ")
    assert await catalog.packages(caller) == []


async def test_unknown_fields_change_nothing(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, active="0", PACKAGE_ACTIVE="0", tenant_id="another", **{"logo[$ne]": ""})

    assert [package["PACKAGE_ACTIVE"] for package in await catalog.packages(caller)] == ["1"]


async def test_a_body_that_is_not_a_form_is_refused(catalog: Catalog) -> None:
    answer = await catalog.call(make_caller(), "POST", "add_package", json=package_form())

    assert answer.status == 400


@pytest.mark.parametrize("name", ["Logo", "logo"])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
async def test_a_logo_becomes_a_small_png_data_uri(catalog: Catalog, name: str, kind: str) -> None:
    caller = make_caller()

    answer = await catalog.call(caller, "POST", "add_package", data=with_logo(picture(kind, (512, 256)), name))

    assert answer.status == 200
    logo = logo_of((await catalog.packages(caller))[0])
    assert (logo.format, logo.size) == ("PNG", (256, 128))


@pytest.mark.parametrize(
    "image", [picture("GIF"), b"<svg/>", picture() + bytes(5 << 20), picture(mode="1", size=(9000, 9000))], ids=len
)
async def test_an_invalid_logo_is_named(catalog: Catalog, image: bytes) -> None:
    caller = make_caller()

    answer = await catalog.call(caller, "POST", "add_package", data=with_logo(image))

    assert answer.status == 400
    assert answer.body["detail"].startswith("Logo: ")
    assert await catalog.packages(caller) == []


async def test_a_logo_without_a_file_is_refused(catalog: Catalog) -> None:
    answer = await catalog.call(make_caller(), "POST", "add_package", data=package_form(Logo="logo.png"))

    assert (answer.status, answer.body["detail"]) == (400, "Logo: must be a file")


async def test_a_form_over_the_logo_limit_is_refused(catalog: Catalog) -> None:
    answer = await catalog.call(make_caller(), "POST", "add_package", data=with_logo(bytes(7 << 20)))

    assert answer.status == 413


async def test_an_empty_file_is_no_logo(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.call(caller, "POST", "add_package", data=with_logo(b""))

    assert [package["PACKAGE_LOGO"] for package in await catalog.packages(caller)] == [""]


async def test_packages_are_ordered_by_id(catalog: Catalog) -> None:
    caller = make_caller()
    for package_id in ("b", "C", "a", "b.a"):
        await catalog.add_package(caller, package_id)

    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["C", "a", "b", "b.a"]


async def test_versions_and_their_uids_are_listed_newest_first(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    uids = {text: await catalog.add_version(caller, package_version=text) for text in ("1.9", "1.10", "1.10-rc")}

    (package,) = await catalog.packages(caller)
    assert package["VERSIONS"] == ["1.10", "1.10-rc", "1.9"]
    assert package["VERSIONS_UID"] == [uids[text] for text in package["VERSIONS"]]


async def test_an_inactive_package_is_shown_on_request_only(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)

    answer = await catalog.call(caller, "PATCH", "set_package_active", "acme.editor", data={"package_active": "0"})

    assert (answer.status, answer.body) == (200, {"Message": "Package was updated successfully!"})
    assert await catalog.packages(caller) == []
    assert await catalog.packages(caller, include_disabled="false") == []
    assert [package["PACKAGE_ACTIVE"] for package in await catalog.packages(caller, include_disabled="true")] == ["0"]


async def test_a_package_can_be_activated_again(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    for active in ("0", "1"):
        await catalog.call(caller, "PATCH", "set_package_active", "acme.editor", data={"package_active": active})

    assert [package["PACKAGE_ACTIVE"] for package in await catalog.packages(caller)] == ["1"]


@pytest.mark.parametrize("data", [{}, {"package_active": ""}, {"package_active": "perhaps"}])
async def test_active_is_1_or_0(catalog: Catalog, data: dict[str, str]) -> None:
    caller = make_caller()
    await catalog.add_package(caller)

    answer = await catalog.call(caller, "PATCH", "set_package_active", "acme.editor", data=data)

    assert answer.status == 400


async def test_include_disabled_is_true_or_false(catalog: Catalog) -> None:
    answer = await catalog.call(make_caller(), "POST", "get_packages", params={"include_disabled": "perhaps"})

    assert answer.status == 400
    assert answer.body["detail"].startswith("include_disabled: ")


async def test_a_client_does_not_see_blacklisted_packages(catalog: Catalog) -> None:
    caller = make_caller()
    for package_id in ("a", "b", "c"):
        await catalog.add_package(caller, package_id)
    catalog.stubs.hidden[caller.tenant_id] = ["b", "unknown"]

    listed = await catalog.packages(caller.as_client("a client"))

    assert [package["PACKAGE_ID"] for package in listed] == ["a", "c"]
    assert len(await catalog.packages(caller)) == 3


async def test_a_known_digest_of_hidden_packages_asks_client_registry_once(catalog: Catalog) -> None:
    caller = make_caller()
    for package_id in ("a", "b"):
        await catalog.add_package(caller, package_id)
    catalog.stubs.hidden[caller.tenant_id] = ["b"]
    headers = {HIDDEN: hidden_digest(["b"])}

    for client_id in ("first", "second"):
        answer = await catalog.call(caller.as_client(client_id), "POST", "get_packages", headers=headers)
        assert [package["PACKAGE_ID"] for package in answer.body] == ["a"]

    assert catalog.stubs.operations.count("hidden_packages") == 1


async def test_a_catalog_never_follows_an_unknown_digest(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, "a")
    catalog.stubs.hidden[caller.tenant_id] = ["a"]
    headers = {HIDDEN: hidden_digest(["something else"])}

    answer = await catalog.call(caller.as_client("c1"), "POST", "get_packages", headers=headers)

    assert (answer.body, answer.headers[HIDDEN]) == ([], hidden_digest(["a"]))


async def test_a_client_with_an_unknown_blacklist_gets_no_catalog(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    catalog.stubs.refusal = Unavailable("away")

    answer = await catalog.call(caller.as_client("a client"), "POST", "get_packages")

    assert (answer.status, answer.headers["Retry-After"]) == (500, "5")
    assert len(await catalog.packages(caller)) == 1


async def test_a_catalog_of_any_size_needs_at_most_four_queries(catalog: Catalog) -> None:
    caller = make_caller()
    for number in range(40):
        await catalog.add_package(caller, f"package.{number}")
    await catalog.add_version(caller, "package.7")
    async with catalog.queries() as queries:
        assert len(await catalog.packages(caller.as_client("a client"))) == 40

    assert 1 <= len(queries) <= 4  # of the revision, the rings, the packages, the versions


async def test_an_edit_changes_the_sent_fields_only(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.call(caller, "POST", "add_package", data=with_logo(picture(), package_description="Edits."))
    (before,) = await catalog.packages(caller)

    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data={"package_name": "New"})

    assert (answer.status, answer.body) == (200, {"Message": "Package was updated successfully!"})
    assert await catalog.packages(caller) == [before | {"PACKAGE_NAME": "New"}]


async def test_every_field_of_a_package_can_be_edited(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_description="Edits.")
    form = FormData({"package_name": "N", "package_publisher": "P", "package_description": ""})
    form.add_field("Logo", picture(size=(3, 5)), filename="logo.png")

    await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data=form)

    (package,) = await catalog.packages(caller)
    assert (package["PACKAGE_NAME"], package["PACKAGE_PUBLISHER"], package["PACKAGE_DESCRIPTION"]) == ("N", "P", "")
    assert logo_of(package).size == (3, 5)


async def test_an_edit_without_fields_changes_nothing(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    before = await catalog.packages(caller)

    assert (await catalog.call(caller, "PATCH", "edit_package", "acme.editor")).status == 200
    assert await catalog.packages(caller) == before


@pytest.mark.parametrize("field", ["package_name", "package_publisher"])
async def test_a_name_cannot_be_removed(catalog: Catalog, field: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller)

    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data={field: ""})

    assert (answer.status, answer.body["detail"]) == (400, f"{field}: is required")


@pytest.mark.parametrize(
    ("method", "operation", "data"),
    [
        ("PATCH", "edit_package", {"package_name": "New"}),
        ("PATCH", "set_package_active", {"package_active": "1"}),
        ("DELETE", "delete_package", {}),
        ("GET", "get_package_versions", {}),
        ("DELETE", "delete_package_version", {"versions_uids": "0a1b2c3d-0000-4000-8000-00000000000f"}),
    ],
)
async def test_an_unknown_package_is_answered_404(
    catalog: Catalog, method: str, operation: str, data: dict[str, str]
) -> None:
    answers = {}
    for package_id in ("unknown", "a/b", "..%2f", "\0", "x" * 129, "ö", "{}", "%"):
        answer = await catalog.call(make_caller(), method, operation, package_id, data=data or None)
        answers[package_id] = (answer.status, answer.body["code"])

    assert {name: answer for name, answer in answers.items() if answer != (404, "package_not_found")} == {}


async def test_a_path_that_is_not_utf_8_names_no_package(catalog: Catalog) -> None:
    answer = await catalog.call_raw(make_caller(), "DELETE", "delete_package", "%FF%ED%A0%80")

    assert (answer.status, answer.body["code"]) == (404, "package_not_found")


@pytest.mark.parametrize("package_id", ["a b", "日本.editor", "a{b}", "a%2Fb", "a+b&c=d;e", "A\u0308"])
async def test_a_package_is_found_by_any_valid_id(catalog: Catalog, package_id: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_id)

    assert await catalog.versions(caller, package_id) == []
    assert (await catalog.call(caller, "DELETE", "delete_package", package_id)).status == 200


async def test_a_tenant_cannot_access_the_packages_of_another(catalog: Catalog) -> None:
    owner, other_tenant = make_caller(), make_caller()
    await catalog.add_package(owner)
    before = await catalog.packages(owner)

    edited = await catalog.call(other_tenant, "PATCH", "edit_package", "acme.editor", data={"package_name": "Mine"})
    deleted = await catalog.call(other_tenant, "DELETE", "delete_package", "acme.editor")

    assert (edited.status, deleted.status) == (404, 404)
    assert await catalog.packages(owner) == before


async def test_a_package_is_deleted_with_its_versions_and_files(catalog: Catalog) -> None:
    caller = make_caller(make_tenant())
    await catalog.add_package(caller)
    await catalog.add_package(caller, "kept")
    gone = [await catalog.add_version(caller, package_version=str(number)) for number in range(3)]
    kept_version = await catalog.add_version(caller, "kept")

    answer = await catalog.call(caller, "DELETE", "delete_package", "acme.editor")

    assert (answer.status, answer.body) == (200, {"Message": "Package was deleted successfully!"})
    assert [package["PACKAGE_ID"] for package in await catalog.packages(caller)] == ["kept"]
    assert catalog.stubs.linked_uids == {kept_version}
    for uid in gone:
        assert (await catalog.call(caller, "GET", "get_specific_package_version", uid)).status == 404


async def test_a_package_whose_files_cannot_be_removed_yet_is_hidden_at_once(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    uid = await catalog.add_version(caller)
    catalog.stubs.refusal = Unavailable("away")

    assert (await catalog.call(caller, "DELETE", "delete_package", "acme.editor")).status == 500

    assert await catalog.packages(caller, include_disabled="1") == []
    assert (await catalog.call(caller, "GET", "get_package_versions", "acme.editor")).status == 404
    assert (await catalog.call(caller, "GET", "get_specific_package_version", uid)).status == 404
    assert (await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data={})).status == 404
    assert (await catalog.post_version(caller, package_version="2")).status == 404
    assert (await catalog.call(caller, "POST", "add_package", data=package_form())).status == 401


async def test_deleting_a_package_again_after_a_failure_finishes_it(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    await catalog.add_version(caller)
    catalog.stubs.refusal = Unavailable("away")
    await catalog.call(caller, "DELETE", "delete_package", "acme.editor")
    catalog.stubs.refusal = None

    assert (await catalog.call(caller, "DELETE", "delete_package", "acme.editor")).status == 200

    assert catalog.stubs.linked_uids == set()
    assert await catalog.count_records(caller) == 0
    assert (await catalog.call(caller, "DELETE", "delete_package", "acme.editor")).status == 404


async def test_an_interrupted_deletion_finishes_by_itself(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    await catalog.add_version(caller)
    catalog.stubs.refusal = Unavailable("away")
    await catalog.call(caller, "DELETE", "delete_package", "acme.editor")
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
    await catalog.call(caller, "DELETE", "delete_package", "acme.editor")

    await catalog.add_package(caller)

    (package,) = await catalog.packages(caller)
    assert (package["PACKAGE_LOGO"], package["PACKAGE_DESCRIPTION"], package["VERSIONS"]) == ("", "", [])
    await catalog.add_version(caller)


@pytest.mark.parametrize(
    ("method", "operation", "data", "target"),
    [
        ("PATCH", "edit_package", {"package_name": "New"}, {"package_id": "acme.editor"}),
        ("PATCH", "set_package_active", {"package_active": "0"}, {"package_id": "acme.editor"}),
        ("DELETE", "delete_package", {}, {"package_id": "acme.editor"}),
    ],
)
async def test_a_write_has_an_audit_target(
    catalog: Catalog, method: str, operation: str, data: dict[str, str], target: dict[str, str]
) -> None:
    caller = make_caller()
    await catalog.add_package(caller)

    answer = await catalog.call(caller, method, operation, "acme.editor", data=data or None)

    assert answer.audit_target == target


async def test_an_edit_has_the_changes_before_and_after(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_name="Old")
    long = "x" * 257

    edited = {"package_name": "New", "package_description": long}
    answer = await catalog.call(caller, "PATCH", "edit_package", "acme.editor", data=edited)
    hidden = await catalog.call(caller, "PATCH", "set_package_active", "acme.editor", data={"package_active": "0"})

    digest = f"sha256:{hashlib.sha256(long.encode()).hexdigest()}"
    changes = json.loads(answer.headers[AUDIT_HEADER])["changes"]
    assert {name: after for name, (_, after) in changes.items()} == {"name": "New", "description": digest}
    assert changes["name"] == ["Old", "New"]
    assert json.loads(hidden.headers[AUDIT_HEADER])["changes"] == {"active": ["1", "0"]}


@pytest.mark.parametrize(
    ("method", "operation", "data"),
    [
        ("PATCH", "edit_package", {"package_name": "New"}),
        ("DELETE", "delete_package", {}),
        ("DELETE", "delete_package_version", {"versions_uids": str(UUID(int=7))}),
    ],
)
async def test_a_refused_write_has_an_audit_target(
    catalog: Catalog, method: str, operation: str, data: dict[str, str]
) -> None:
    answer = await catalog.call(make_caller(), method, operation, "acme.editor", data=data or None)

    assert answer.status == 404
    assert answer.audit_target["package_id"] == "acme.editor"
