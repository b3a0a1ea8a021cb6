"""Statistics through the gateway, in both deployments."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.system.publishing import Published, add_package, download, package_id, publish, version_of
from tests.support.system.services import Api
from tests.support.wait import until


async def downloaded_version(api: Api) -> Published:
    """Publish a version and download it twice from the same address."""
    name = package_id()
    await add_package(api, name)
    published = await publish(api, name)
    for _ in range(2):
        await download(api, (await version_of(api, published))["INSTALLER_URL"])
    return published


async def rows_of(api: Api, published: Published) -> list[dict[str, Any]]:
    answer = await api.call("GET", "get_statistics", params={"days": "2"})
    assert answer.status == 200, answer.body
    return [row for row in answer.body if row["uid"] == published.uid]


async def test_downloads_are_counted_in_both_deployments(either: Api) -> None:
    published = await downloaded_version(either)

    async def is_counted() -> bool:
        return bool(await rows_of(either, published))

    await until(is_counted)
    (row,) = await rows_of(either, published)
    assert (row["package_id"], row["version"]) == (published.package_id, "1.0")
    today = datetime.now(UTC).date()
    assert row["days"].keys() <= {today.isoformat(), (today - timedelta(days=1)).isoformat()}
    assert row["downloads"] == sum(row["days"].values()) > 0
    csv = (await either.call("GET", "get_statistics", params={"format": "csv"})).body.decode()
    assert published.uid in csv


async def test_statistics_show_no_other_tenant(tenant: Api, other_tenant: Api) -> None:
    published = await downloaded_version(tenant)

    async def is_counted() -> bool:
        return bool(await rows_of(tenant, published))

    await until(is_counted)
    assert await rows_of(other_tenant, published) == []


async def test_statistics_require_an_administrator(either: Api) -> None:
    assert (await either.anonymous().call("GET", "get_statistics")).status == 401
