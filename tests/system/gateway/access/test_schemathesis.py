"""The gateway answers what fits the interface's document as the document says."""

import pytest

from tests.support.whole.fuzz import SAME_EACH_TIME, fuzz, tight_tenant
from tests.support.whole.services import Services

EXAMPLES = ("--phases", "examples,fuzzing", "--max-examples", "1")
POSITIVE = ("--mode", "positive", "--max-examples", "3")

pytestmark = pytest.mark.full


async def test_each_operation_answers_a_few_requests_as_documented(services: Services) -> None:
    outcome = await fuzz(await tight_tenant(services), *SAME_EACH_TIME, *EXAMPLES)

    assert outcome.exit_code == 0, outcome.said
    assert (outcome.unasked(), outcome.failed_answers()) == (set(), 0), outcome


async def test_each_operation_succeeds_and_answers_valid_requests_as_documented(services: Services) -> None:
    outcome = await fuzz(await tight_tenant(services), *SAME_EACH_TIME, *POSITIVE)

    assert outcome.exit_code == 0, outcome.said
    assert (outcome.never_succeeded(), outcome.failed_answers()) == (set(), 0), outcome
