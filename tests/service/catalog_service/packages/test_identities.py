"""Packages that winget would confuse: a restricted token may not give a package the identity of another one."""

import asyncio
import json
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.services.catalog import EXTERNAL, Catalog
from tests.support.tables import each

CODE = "{0A1B2C3D-0000-4000-8000-00000000000F}"
OTHER_CODE = "{0A1B2C3D-0000-4000-8000-00000000000E}"
BIG, SMALL = "Big.Editor", "Small.Tool"
ENTRIES = json.dumps([{"display_name": "Big Editor 3", "product_code": "BigEditor_is1", "upgrade_code": OTHER_CODE}])
# The fields of a version of Big.Editor, and of a version that has one of its identities.
TAKEN: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"productcode": CODE}, {"productcode": CODE.lower()}),
    ({"upgradecode": CODE}, {"upgradecode": CODE}),
    ({"package_family_name": "Big.Editor_8wekyb3d8bbwe"}, {"package_family_name": "big.editor_8WEKYB3D8BBWE"}),
    ({"apps_and_features_entries": ENTRIES}, {"upgradecode": OTHER_CODE}),
    ({"apps_and_features_entries": ENTRIES}, {"apps_and_features_entries": '[{"product_code": "bigeditor_IS1"}]'}),
    ({"apps_and_features_entries": ENTRIES}, {"apps_and_features_entries": '[{"display_name": "BIG Editor x64"}]'}),
    ({}, {"apps_and_features_entries": '[{"display_name": "Big Editor 2.0 (64-bit)"}]'}),
]


@pytest.fixture
async def admin(catalog: Catalog) -> Caller:
    return await new_admin(catalog)


async def new_admin(catalog: Catalog) -> Caller:
    """An administrator of a tenant with the packages of two publishers."""
    admin = make_caller()
    await catalog.add_package(admin, BIG, package_name="Big Editor", package_publisher="Big")
    await catalog.add_package(admin, SMALL, package_name="Small Tool", package_publisher="Small")
    return admin


@pytest.fixture
def token(admin: Caller) -> Caller:
    """A token that may change the packages of one publisher only."""
    return token_for(admin, "Small.*")


def token_for(admin: Caller, *patterns: str) -> Caller:
    return make_caller(admin.tenant, username="token:ci", packages=patterns, creator="erika")


async def write(catalog: Catalog, caller: Caller, method: str, *path: str, **data: str) -> Answer:
    return await catalog.call(caller, method, *path, data=data)


def assert_taken(answer: Answer) -> None:
    assert (answer.status, answer.body["code"]) == (403, "identity_taken")
    assert BIG in answer.body["detail"]


@each(("published", "claimed"), TAKEN)
async def test_a_version_with_an_identity_of_another_package_is_refused(
    catalog: Catalog, published: dict[str, str], claimed: dict[str, str]
) -> None:
    admin = await new_admin(catalog)
    await catalog.add_version(admin, BIG, file_type="EXE", **published)
    name = catalog.stubs.add_file()

    answer = await catalog.post_version(
        token_for(admin, "Small.*"), SMALL, file_type="EXE", server_filename=name, **claimed
    )

    assert_taken(answer)
    assert await catalog.versions(admin, SMALL) == []
    assert await catalog.count_records(admin) == 3
    assert catalog.stubs.links[name] is None  # An administrator can publish the upload.


@pytest.mark.parametrize("inspected", [True, False])
async def test_a_code_that_only_the_file_has_is_refused(
    catalog: Catalog, admin: Caller, token: Caller, inspected: bool
) -> None:
    """Also if the file could not be inspected before its claim."""
    await catalog.add_version(admin, BIG, productcode=CODE)
    if inspected:
        catalog.stubs.inspected = {"productcode": CODE}
    else:
        catalog.stubs.not_inspected = Unavailable("busy")
        catalog.stubs.claim_fields = {"product_code": CODE}

    answer = await catalog.post_version(token, SMALL)

    assert_taken(answer)
    assert await catalog.count_records(admin) == 3


@each("name", ["Big Editor", "big editor 7.1 (x64)", "BIG EDITOR"])
async def test_a_package_with_the_name_of_another_is_refused(
    catalog: Catalog, admin: Caller, token: Caller, name: str
) -> None:
    """The publisher does not matter: clients send the name only."""
    local = json.dumps([{"package_locale": "de-DE", "package_name": name}])
    new = {"package_id": "Small.New", "package_publisher": "Small"}

    assert_taken(await write(catalog, token, "POST", "add_package", **new, package_name=name))
    assert_taken(await write(catalog, token, "POST", "add_package", **new, package_name="New", locales=local))
    assert_taken(await write(catalog, token, "PATCH", "edit_package", SMALL, package_name=name))
    assert_taken(await write(catalog, token, "PATCH", "edit_package", SMALL, locales=local))

    assert [package["PACKAGE_NAME"] for package in await catalog.packages(admin)] == ["Big Editor", "Small Tool"]
    assert await catalog.count_records(admin) == 2


async def test_an_inactive_package_and_another_channel_keep_their_identities(
    catalog: Catalog, admin: Caller, token: Caller
) -> None:
    await catalog.add_version(admin, BIG, productcode=CODE, channel="beta")
    for active in ("1", "0"):
        await catalog.call(admin, "PATCH", "set_package_active", BIG, data={"package_active": active})

        assert_taken(await catalog.post_version(token, SMALL, productcode=CODE))
        assert_taken(await write(catalog, token, "PATCH", "edit_package", SMALL, package_name="Big Editor"))


async def test_a_version_that_is_not_published_yet_keeps_its_identities(
    catalog: Catalog, admin: Caller, token: Caller
) -> None:
    """Of two tokens that publish at once, one comes too late."""
    answers: list[Answer] = []

    async def publish_the_other() -> None:
        catalog.stubs.during = None
        answers.append(await catalog.post_version(token, SMALL, productcode=CODE))

    catalog.stubs.during = publish_the_other
    await catalog.add_version(token_for(admin, "Big.*"), BIG, productcode=CODE)

    (answer,) = answers
    assert_taken(answer)


@pytest.fixture
async def interrupted(catalog: Catalog, token: Caller) -> dict[str, str]:
    """The form of a version of Small.Tool with a code, which the token could not finish."""
    form = {"productcode": CODE, "server_filename": catalog.stubs.add_file()}
    catalog.stubs.refusal = Unavailable("busy")
    assert (await catalog.post_version(token, SMALL, **form)).status == 500
    catalog.stubs.refusal = None
    return form


@pytest.mark.usefixtures("interrupted")
async def test_pending_versions_of_the_own_package_do_not_allow_an_identity(
    catalog: Catalog, admin: Caller, token: Caller
) -> None:
    """Otherwise two publications at once would allow each other."""
    await catalog.add_version(admin, BIG, productcode=CODE)

    answer = await catalog.post_version(token, SMALL, package_version="2.0", productcode=CODE)

    assert_taken(answer)


async def test_two_tokens_do_not_take_one_name_at_once(catalog: Catalog, admin: Caller) -> None:
    async def add(number: int, publisher: str) -> int:
        form = {
            "package_id": f"{publisher}.New{number}",
            "package_name": f"New {number}a",
            "package_publisher": publisher,
        }
        return (await catalog.call(token_for(admin, f"{publisher}.*"), "POST", "add_package", data=form)).status

    for number in range(5):
        statuses = await asyncio.gather(add(number, "Small"), add(number, "Big"))
        assert sorted(statuses) in ([200, 403], [403, 403])


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("is_taken", [True, False])
async def test_an_interrupted_version_of_a_token_is_checked_again(
    catalog: Catalog, admin: Caller, is_taken: bool
) -> None:
    if is_taken:
        await catalog.add_version(admin, BIG, productcode=CODE)

    await catalog.age_and_sweep()

    assert [version["PRODUCTCODE"] for version in await catalog.versions(admin, SMALL)] == [CODE] * (not is_taken)
    assert await catalog.count_records(admin) == 3


async def test_an_administrator_finishes_an_interrupted_version_of_a_token(
    catalog: Catalog, admin: Caller, interrupted: dict[str, str]
) -> None:
    await catalog.add_version(admin, BIG, productcode=CODE)

    answer = await catalog.post_version(admin, SMALL, **interrupted)

    assert answer.status == 201, answer.body


async def test_a_hidden_package_of_an_interrupted_token_disappears(
    catalog: Catalog, token: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"package_id": "Small.New", "package_name": "New", "package_publisher": "Small"}
    with monkeypatch.context() as stopped:
        stopped.setattr("catalog_service.identities.service.MongoIdentityStore.owners", None)
        assert (await catalog.call(token, "POST", "add_package", data=data)).status == 500
    assert (await catalog.call(token, "GET", "get_package_details", "Small.New")).status == 404

    await catalog.age_and_sweep()

    assert (await catalog.call(token, "POST", "add_package", data=data)).status == 200
    assert (await catalog.call(token, "GET", "get_package_details", "Small.New")).status == 200


async def test_an_identity_that_the_own_package_has_may_stay(catalog: Catalog, admin: Caller, token: Caller) -> None:
    for package_id in (BIG, SMALL):
        await catalog.add_version(admin, package_id, productcode=CODE)
    await catalog.call(admin, "PATCH", "edit_package", SMALL, data={"package_name": "Big Editor"})

    await catalog.add_version(token, SMALL, package_version="2.0", productcode=CODE)

    edit = {"package_name": "Big Editor", "package_description": "Edits."}
    assert (await catalog.call(token, "PATCH", "edit_package", SMALL, data=edit)).status == 200


async def test_identities_are_free_among_own_packages_and_for_other_tenants(catalog: Catalog, admin: Caller) -> None:
    stranger = make_caller()
    await catalog.add_package(stranger, BIG)
    for caller, package_id in (
        (stranger, BIG),
        (token_for(admin, "Small.*"), SMALL),
        (token_for(admin, "Small.*", "Big.*"), BIG),
    ):
        await catalog.add_version(caller, package_id, productcode=CODE)


async def test_an_administrator_is_warned_of_a_shared_identity(catalog: Catalog, admin: Caller) -> None:
    await catalog.add_version(admin, BIG, productcode=CODE)
    uid = await catalog.add_version(admin, SMALL, **EXTERNAL, productcode=CODE)
    await catalog.call(admin, "PATCH", "edit_package", SMALL, data={"package_name": "Big Editor"})
    shared = [{"field": "productcode", "value": CODE.lower(), "package_id": BIG}]
    name = {"field": "package_name", "value": "bigeditor", "package_id": BIG}

    details = await catalog.call(admin, "GET", "get_version_details", uid)
    checked = await catalog.call(
        admin, "GET", "check_version", params={"package_id": "Small.Other", "productcode": CODE}
    )

    assert details.body["shared_identities"] == [name, *shared]
    assert checked.body["shared_identities"] == [*shared, {**shared[0], "package_id": SMALL}]


async def test_a_check_names_the_packages_of_the_same_name(catalog: Catalog, admin: Caller) -> None:
    async def check(**params: str) -> Any:
        return (await catalog.call(admin, "GET", "check_version", params=params)).body["shared_identities"]

    named = [{"field": "package_name", "value": "bigeditor", "package_id": BIG}]
    assert await check(package_name="Big Editor 2.1", package_id=SMALL) == named
    assert await check(package_name="Big Editor 2.1", package_id=BIG) == []
    assert await check(package_name="Another") == await check() == []
