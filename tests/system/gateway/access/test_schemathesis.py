"""Valid requests are answered as the OpenAPI document says."""

import pytest

from tests.support.system.fuzz import DETERMINISTIC, fuzz, limited_tenant
from tests.support.system.services import Services

EXAMPLES = ("--phases", "examples,fuzzing", "--max-examples", "1")
POSITIVE = ("--mode", "positive", "--max-examples", "3")

pytestmark = pytest.mark.full


async def test_each_operation_answers_a_few_requests_as_documented(services: Services) -> None:
    outcome = await fuzz(await limited_tenant(services), *DETERMINISTIC, *EXAMPLES)

    assert outcome.exit_code == 0, outcome.report
    assert (outcome.untested(), outcome.failed_answers()) == (set(), 0), outcome


async def test_each_operation_succeeds_and_answers_valid_requests_as_documented(services: Services) -> None:
    outcome = await fuzz(await limited_tenant(services), *DETERMINISTIC, *POSITIVE)

    assert outcome.exit_code == 0, outcome.report
    assert (outcome.never_succeeded(), outcome.failed_answers()) == (set(), 0), outcome
