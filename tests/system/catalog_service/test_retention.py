"""Retention through all services: a version is hidden, then deleted, and its storage is free again."""

import pytest
from yarl import URL

from tests.support.faults.retention import RetentionScenario
from tests.support.processes.cluster import Cluster
from tests.support.wait import until

pytestmark = pytest.mark.full


async def test_storage_is_given_back_to_the_quota(cluster: Cluster) -> None:
    scenario = await RetentionScenario.create(cluster)
    preview = (await scenario.api.call("GET", "preview_retention")).body
    used = []
    for _ in range(2):
        await scenario.begin_day()
        await until(scenario.is_run)
        used.append((await scenario.api.call("GET", "server_information")).body["storage_used"])
        await scenario.pass_days(8)
    assert ([row["uid"] for row in preview["versions"]], preview["bytes"]) == ([scenario.old.uid], 1000)
    assert used == [2000, 1000]


async def test_an_address_given_out_before_is_refused_until_the_version_is_back(cluster: Cluster) -> None:
    scenario = await RetentionScenario.create(cluster)
    version = await scenario.api.call("GET", "get_specific_package_version", scenario.old.uid)
    address = URL(version.body["INSTALLER_URL"], encoded=True)

    async def is_delivered() -> bool:
        async with scenario.api.session.get(address) as answer:
            assert answer.status in {200, 404}
            return answer.status == 200

    async def is_withheld() -> bool:
        return not await is_delivered()

    assert await is_delivered()
    await scenario.begin_day()
    await until(is_withheld)
    pinned = await scenario.api.call("PATCH", "pin_version", scenario.old.uid, data={"pinned": "1"})
    assert (pinned.status, await is_delivered()) == (200, True)
