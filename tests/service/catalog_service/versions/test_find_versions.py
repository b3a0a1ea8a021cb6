"""The versions of a package in pages, and winget's rules for fields of a form."""

import asyncio
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.auth.roles import ADMINISTRATOR
from common.errors import Unavailable
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog
from tests.support.tables import each
from tests.support.wait import TIMEOUT


def refusal(field: str, code: str, reason: str) -> dict[str, str]:
    return {"field": field, "code": code, "reason": reason, "uid": ""}


ID_REASON = refusal(
    "package_id", "not_in_parts", "must be two to eight parts of at most 32 characters, with dots between them"
)
VERSION_REASON = refusal("package_version", "forbidden_character", 'must not hold \\ / : * ? " < > |')


@pytest.fixture
async def caller(catalog: Catalog) -> Caller:
    """The administrator of a tenant with a package."""
    caller = make_caller().as_administrator("ada", "a session", ADMINISTRATOR)
    await catalog.add_package(caller)
    return caller


async def find_versions(catalog: Catalog, caller: Caller, **query: str) -> dict[str, Any]:
    answer = await catalog.call(caller, "GET", "find_versions", "acme.editor", params=query)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found


async def test_a_version_has_its_size_date_and_author(catalog: Catalog, caller: Caller) -> None:
    uid = await catalog.add_version(caller)

    found = await find_versions(catalog, caller)

    (version,) = found["versions"]
    assert (version["uid"], version["size"], version["published_by"], found["total"]) == (uid, 4096, "ada", 1)
    assert version["published_at"].endswith("+00:00")
    details = (await catalog.call(caller, "GET", "get_version_details", uid)).body
    assert {name: details[name] for name in ("size", "published_at", "published_by")}.items() <= version.items()
    assert "expires=" in version["download_url"]


async def test_a_version_has_its_downloads_of_thirty_days(catalog: Catalog, caller: Caller) -> None:
    uids = [await catalog.add_version(caller, package_version=version) for version in ("1.0", "2.0")]
    catalog.stubs.downloads = {uids[0]: {"2026-11-21": 2, "2026-11-22": 3}}

    versions = (await find_versions(catalog, caller))["versions"]

    assert {version["uid"]: version["downloads"] for version in versions} == {uids[0]: 5, uids[1]: 0}
    assert catalog.stubs.days == 30


@pytest.mark.parametrize("hangs", [True, False])
async def test_versions_are_found_while_their_downloads_are_unknown(
    catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr("catalog_service.outgoing.upload_service.PAGE_TIMEOUT", 0.1)
    monkeypatch.setattr("catalog_service.outgoing.upload_service.STATISTICS_TIMEOUT", 10 * TIMEOUT)
    await catalog.add_version(caller)
    catalog.stubs.hangs, catalog.stubs.refusal = hangs, None if hangs else Unavailable("away")

    async with asyncio.timeout(TIMEOUT):
        (version,) = (await find_versions(catalog, caller))["versions"]

    assert version["downloads"] is None


async def test_versions_are_found_in_pages_with_the_newest_first(catalog: Catalog, caller: Caller) -> None:
    for version in ("1.9", "1.10", "1/2"):
        await catalog.add_version(caller, package_version=version)

    pages = [await find_versions(catalog, caller, offset=offset, limit="2") for offset in ("0", "2")]

    assert [[row["package_version"] for row in page["versions"]] for page in pages] == [["1.10", "1.9"], ["1/2"]]
    assert [page["total"] for page in pages] == [3, 3]
    refusals = [row["winget_refusals"] for page in pages for row in page["versions"]]
    assert refusals == [[], [], [VERSION_REASON]]


async def test_versions_of_an_unknown_package_are_not_found(catalog: Catalog, caller: Caller) -> None:
    answer = await catalog.call(caller, "GET", "find_versions", "acme.viewer")

    assert (answer.status, answer.body["code"]) == (404, "package_not_found")


@each(
    ("fields", "refusals"),
    [
        ({}, []),
        ({"package_id": "Acme.Editor", "package_version": "1.0", "file_type": "EXE"}, []),
        ({"package_id": "SingleWordId"}, [ID_REASON]),
        ({"package_id": "", "package_version": ""}, []),
        ({"package_version": "1/0"}, [VERSION_REASON]),
        ({"package_id": "SingleWordId", "package_version": "1/0"}, [ID_REASON, VERSION_REASON]),
        (
            {"file_type": "ZIP", "file_nested_path": ""},
            [refusal("file_nested_path", "nested_path_required", "is required with ZIP")],
        ),
        (
            {"file_type": "MSIX", "productcode": "{01234567-89AB-CDEF-0123-456789ABCDEF}"},
            [refusal("productcode", "type_without_entry", "is not for MSIX, APPX and fonts")],
        ),
    ],
)
async def test_fields_are_checked_against_the_rules_of_winget(
    catalog: Catalog, caller: Caller, fields: dict[str, str], refusals: list[dict[str, str]]
) -> None:
    answer = await catalog.call(caller, "GET", "check_version", params=fields)

    assert answer.body == {"winget_refusals": refusals, "shared_identities": []}


@each(
    ("package_id", "versions", "expected"),
    [
        ("acme.a", [], None),
        ("single", [], ID_REASON),
        ("acme.a", [{"package_version": "1/0"}], VERSION_REASON),
        ("acme.a", [{"package_version": "1/0"}, {"package_version": "1.0"}], None),
        ("acme.a", [{"channel": "beta"}], refusal("", "no_stable_version", "No version is in the channel stable.")),
    ],
)
async def test_a_found_package_has_the_reason_why_winget_sees_no_version(
    catalog: Catalog, package_id: str, versions: list[dict[str, str]], expected: dict[str, str] | None
) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_id)
    for version in versions:
        await catalog.add_version(caller, package_id, **version)

    found = await catalog.call(caller, "GET", "find_packages", params={"text": package_id})

    (package,) = found.body["packages"]
    assert package["winget_refusal"] == expected
