"""Statistics: the downloads of versions, and the numbers of the catalog."""

from uuid import uuid4

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog
from tests.support.tables import each

DAYS = {"2026-11-21": 1, "2026-11-22": 3}


async def publish(catalog: Catalog, caller: Caller, package_id: str, version: str, **days: int) -> str:
    """Add a version and its downloads; the days are written as `d2026_11_22`."""
    uid = await catalog.add_version(caller, package_id, package_version=version)
    catalog.stubs.downloads[uid] = {name[1:].replace("_", "-"): number for name, number in days.items()}
    return uid


async def test_the_most_downloaded_version_is_first(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, "Acme.App")
    first = await publish(catalog, caller, "Acme.App", "1.0", d2026_11_22=1)
    second = await publish(catalog, caller, "Acme.App", "2.0", d2026_11_21=1, d2026_11_22=3)
    answer = await catalog.call(caller, "GET", "get_statistics")
    assert answer.body == [
        {"package_id": "Acme.App", "version": "2.0", "uid": second, "downloads": 4, "days": DAYS},
        {"package_id": "Acme.App", "version": "1.0", "uid": first, "downloads": 1, "days": {"2026-11-22": 1}},
    ]
    assert catalog.stubs.days == 30


async def test_versions_that_are_not_of_the_tenant_are_left_out(catalog: Catalog) -> None:
    owner = make_caller()
    await catalog.add_package(owner)
    await publish(catalog, owner, "acme.editor", "1.0", d2026_11_22=1)
    catalog.stubs.downloads[str(uuid4())] = DAYS
    assert (await catalog.call(make_caller(), "GET", "get_statistics")).body == []


async def test_csv_has_a_row_per_version_and_day(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, "Acme.App")
    uid = await publish(catalog, caller, "Acme.App", "2.0", d2026_11_21=1, d2026_11_22=3)
    answer = await catalog.call(caller, "GET", "get_statistics", params={"format": "csv", "days": "7"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = [
        "package_id,version,uid,day,downloads",
        f"Acme.App,2.0,{uid},2026-11-21,1",
        f"Acme.App,2.0,{uid},2026-11-22,3",
        "",
    ]
    assert answer.body.decode().split("\r\n") == rows
    assert catalog.stubs.days == 7


@each("start", ["=", "+", "-", "@"])
async def test_no_csv_cell_is_a_formula(catalog: Catalog, start: str) -> None:
    caller, package_id = make_caller(), f"{start}Acme.App"
    await catalog.add_package(caller, package_id)
    await publish(catalog, caller, package_id, "1.0", d2026_11_22=1)
    body = (await catalog.call(caller, "GET", "get_statistics", params={"format": "csv"})).body
    assert body.decode().split("\r\n")[1].startswith(f"'{package_id},")


@each(("name", "value"), [("days", "0"), ("days", "401"), ("days", "x"), ("days", "-1"), ("format", "xml")])
async def test_an_invalid_parameter_is_named(catalog: Catalog, name: str, value: str) -> None:
    answer = await catalog.call(make_caller(), "GET", "get_statistics", params={name: value})
    assert (answer.status, name in answer.body["detail"]) == (400, True)


async def test_the_summary_counts_packages_versions_and_days(catalog: Catalog) -> None:
    caller = make_caller()
    for package_id in ("Acme.App", "Acme.Tool", "Acme.Unused"):
        await catalog.add_package(caller, package_id)
    await publish(catalog, caller, "Acme.App", "1.0", d2026_11_22=1)
    await publish(catalog, caller, "Acme.App", "2.0", d2026_11_21=2)
    await publish(catalog, caller, "Acme.Tool", "1.0", d2026_11_22=4)
    assert (await catalog.call(caller, "POST", "catalog_summary", json={})).body == {
        "packages": 3,
        "versions": 3,
        "days": {"2026-11-21": 2, "2026-11-22": 5},
        "most_downloaded": [["Acme.Tool", 4], ["Acme.App", 3]],
    }


async def test_the_summary_counts_the_downloads_of_the_asked_days(catalog: Catalog) -> None:
    asked = []
    for body in ({}, {"days": 7}, {"days": 365}):
        assert (await catalog.call(make_caller(), "POST", "catalog_summary", json=body)).status == 200
        asked.append(catalog.stubs.days)
    assert asked == [30, 7, 365]


async def test_without_upload_service_statistics_are_refused(catalog: Catalog) -> None:
    catalog.stubs.refusal = Unavailable("The upload service does not answer.")
    assert (await catalog.call(make_caller(), "GET", "get_statistics")).status == 500
