"""Invalid requests are answered as the OpenAPI document says."""

import pytest

from tests.support.system.fuzz import DETERMINISTIC, fuzz, limited_tenant
from tests.support.system.services import Services

NEGATIVE = ("--mode", "negative", "--max-examples", "2", "--phases", "coverage,fuzzing")


@pytest.mark.full
async def test_each_operation_answers_invalid_requests_as_documented(services: Services) -> None:
    outcome = await fuzz(await limited_tenant(services), *DETERMINISTIC, *NEGATIVE)

    assert outcome.exit_code == 0, outcome.report
    assert (outcome.untested(), outcome.failed_answers()) == (set(), 0), outcome
