"""The page of retention: what the next run does with which version, and why."""

import pytest

from tests.support.faults.retention import RetentionScenario
from tests.support.processes.cluster import Cluster
from tests.support.system.pages import sign_in
from tests.support.system.services import Api
from tests.support.wait import until


async def page(api: Api, language: str = "en") -> str:
    """The text of the page, with single spaces."""
    headers = {**await sign_in(api), "Accept-Language": language}
    answer = await api.anonymous().call("GET", "dashboard", "retention", headers=headers)
    assert answer.status == 200, answer.body
    return " ".join(str(answer.body).split())


async def test_the_page_of_a_tenant_without_rules_is_empty(tenant: Api) -> None:
    assert "No version goes with the next run." in await page(tenant)


@pytest.mark.full
async def test_the_page_shows_the_next_step_and_the_reason(cluster: Cluster) -> None:
    scenario = await RetentionScenario.create(cluster)
    before = await page(scenario.api)
    await scenario.begin_day()
    await until(scenario.is_run)
    after, german = await page(scenario.api), await page(scenario.api, "de")
    for text in ("The next run hides 1 version (1,000 B).", "It is hidden<", "Newer versions of its channel"):
        assert text in before
    for text in ("1 version is hidden already.", "It is deleted after <time"):
        assert text in after
    for text in ("1 Version ist schon ausgeblendet.", "Neuere Versionen ihres Kanals"):
        assert text in german
    assert f"/versions/{scenario.old.uid}" in before
    assert scenario.new.uid not in before + after
