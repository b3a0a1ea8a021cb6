"""The gateway answers whatever fits the interface's document, and whatever does not, as the document says."""

from tests.system.fuzz import fuzz
from tests.system.services import Services

SHORT = ("--max-examples", "3", "--seed", "1", "--generation-deterministic")


async def test_every_answer_is_documented_and_none_is_a_server_error(services: Services) -> None:
    outcome = await fuzz(services, *SHORT)

    assert outcome.exit_code == 0, outcome.said
    assert (outcome.never_succeeded(), outcome.failed_answers()) == (set(), 0), outcome
