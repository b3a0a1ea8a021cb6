"""Each caller has a share of refused writes in the audit log, and learns how many exceeded it."""

import pytest

from common.telemetry import of_request
from gateway.forwarding import audit
from gateway.forwarding.audit import RefusalCounts
from tests.support.factories import make_caller, make_tenant

TENANT = make_tenant()
ADA, BELA = (make_caller(TENANT, username=name) for name in ("ada", "bela"))


@pytest.fixture(autouse=True)
def one_refusal_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_REFUSALS", 1)


def test_each_caller_has_refusals_of_its_own() -> None:
    counts = RefusalCounts()
    namesake = make_caller(username="ada")
    assert [counts.count(caller, 403) for caller in (ADA, ADA, BELA, namesake)] == [True, False, True, True]


def test_a_minute_that_ended_says_how_many_refusals_it_left_out() -> None:
    counts = RefusalCounts()
    for status, request in ((403, "first"), (403, "second"), (409, "third")):
        with of_request(request):
            counts.count(ADA, status)
    counts.count(BELA, 403)  # It is recorded.
    assert counts.take_ended() == []
    counts.end_minute()
    [left_out] = counts.take_ended()
    assert (left_out.caller, left_out.left_out, left_out.status, left_out.request_id) == (ADA, 2, 409, "third")
    assert counts.take_ended() == []


@pytest.mark.parametrize(("most", "recorded", "left_out"), [(1, True, []), (0, False, [1])])
def test_a_minute_ends_without_another_refusal(
    monkeypatch: pytest.MonkeyPatch, most: int, recorded: bool, left_out: list[int]
) -> None:
    monkeypatch.setattr(audit, "MINUTE", 0.0)
    monkeypatch.setattr(audit, "MAX_REFUSALS", most)
    counts = RefusalCounts()
    for _ in range(2):
        assert counts.count(ADA, 403) is recorded
        assert [each.left_out for each in counts.take_ended()] == left_out


def test_the_counted_callers_are_limited_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_CALLERS", 2)
    counts = RefusalCounts()
    callers = [make_caller(TENANT, username=f"user {number}") for number in range(4)]
    for caller in callers:
        for _ in range(2):
            counts.count(caller, 403)
    assert len(counts._counts) == 2
    assert [each.caller for each in counts.take_ended()] == callers[:2]
