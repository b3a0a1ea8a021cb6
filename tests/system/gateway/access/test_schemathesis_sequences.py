"""Schemathesis puts parts of an answer into the next request: a package gets versions, which are read and deleted."""

from collections.abc import AsyncIterator

import pytest

from common.auth.callers import Deployment
from tests.support.whole.fuzz import DETERMINISTIC, fuzz, limited_tenant
from tests.support.whole.services import Api, Services, single_gateway

SEQUENCES = ("--phases", "stateful", "--max-examples", "20", "--mode", "positive")
OF_PACKAGES = ("--include-tag", "Packages", "--include-tag", "Package versions")
DONE = {"POST add_package_version", "GET get_specific_package_version", "DELETE delete_package_version"}

pytestmark = pytest.mark.full


@pytest.fixture
async def tight(services: Services) -> Api:
    return await limited_tenant(services)


@pytest.fixture(params=list(Deployment))
async def alias(services: Services, redis_url: str, tight: Api, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """The tenant's address in each deployment in turn."""
    async with single_gateway(services, redis_url, tight) as single:
        yield {Deployment.MULTI: tight, Deployment.SINGLE: single}[request.param]


async def test_requests_built_from_answers_are_answered_as_documented(tight: Api, alias: Api) -> None:
    outcome = await fuzz(tight, *DETERMINISTIC, *SEQUENCES, *OF_PACKAGES, alias=alias)

    assert outcome.exit_code == 0, outcome.report
    assert outcome.failed_answers() == 0, outcome
    assert not outcome.never_succeeded() & DONE
