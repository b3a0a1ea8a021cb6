"""The gateway answers whatever fits the interface's document, and whatever does not, as the document says."""

from collections.abc import AsyncIterator

import pytest

from common.caller import Deployment
from tests.support.whole.fuzz import fuzz, tight_tenant
from tests.support.whole.services import Api, Services, single_gateway

ALWAYS_THE_SAME = ("--seed", "1", "--generation-deterministic")
SHORT = (*ALWAYS_THE_SAME, "--max-examples", "3")
# What is answered goes into the next request: a package gets versions, they are looked at and deleted, and it is.
SEQUENCES = (*ALWAYS_THE_SAME, "--phases", "stateful", "--max-examples", "40", "--mode", "positive")
OF_PACKAGES = ("--include-tag", "Packages", "--include-tag", "Package versions")


@pytest.fixture
async def tight(services: Services) -> Api:
    return await tight_tenant(services)


@pytest.fixture(params=list(Deployment))
async def door(services: Services, redis_url: str, tight: Api, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """The way into the tenant in each deployment in turn."""
    async with single_gateway(services, redis_url, tight) as single:
        yield {Deployment.MULTI: tight, Deployment.SINGLE: single}[request.param]


async def test_every_answer_is_documented_and_none_is_a_server_error(tight: Api) -> None:
    outcome = await fuzz(tight, *SHORT)

    assert outcome.exit_code == 0, outcome.said
    assert (outcome.never_succeeded(), outcome.failed_answers()) == (set(), 0), outcome


async def test_whatever_follows_on_an_answer_is_answered_as_documented_too(tight: Api, door: Api) -> None:
    outcome = await fuzz(tight, *SEQUENCES, *OF_PACKAGES, door=door)

    assert outcome.exit_code == 0, outcome.said
    assert outcome.failed_answers() == 0, outcome
    assert not outcome.never_succeeded() & {
        "POST add_package_version",
        "GET get_specific_package_version",
        "DELETE delete_package_version",
    }
