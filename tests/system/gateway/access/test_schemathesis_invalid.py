"""The gateway answers what does not fit the interface's document as the document says."""

import pytest

from tests.support.whole.fuzz import SAME_EACH_TIME, fuzz, tight_tenant
from tests.support.whole.services import Services

NEGATIVE = ("--mode", "negative", "--max-examples", "2", "--phases", "coverage,fuzzing")


@pytest.mark.full
async def test_each_operation_answers_invalid_requests_as_documented(services: Services) -> None:
    outcome = await fuzz(await tight_tenant(services), *SAME_EACH_TIME, *NEGATIVE)

    assert outcome.exit_code == 0, outcome.said
    assert (outcome.unasked(), outcome.failed_answers()) == (set(), 0), outcome
