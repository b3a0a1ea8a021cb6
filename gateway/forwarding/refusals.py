"""Limits the refused writes of one caller in the audit log, so that nobody hides the refusals of others."""

import time
from dataclasses import dataclass

from common.auth.internal_tokens import Caller
from common.telemetry import log, request_id

MAX_REFUSALS = 60  # a minute and caller that are recorded
MINUTE = 60.0  # seconds
MAX_CALLERS = 10_000  # that are counted at once; beyond that, the oldest minute ends early


@dataclass
class Refusals:
    """The refused writes of one user or API token in a minute; `caller`, `status` and `request_id` are of the last."""

    caller: Caller
    ends_at: float
    status: int = 0
    request_id: str = ""
    count: int = 0

    @property
    def left_out(self) -> int:
        """How many are not recorded one by one."""
        return max(0, self.count - MAX_REFUSALS)


class RefusalCounts:
    """Counts refused writes by caller."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Refusals] = {}  # the oldest first
        self._ended: list[Refusals] = []

    def count(self, caller: Caller, status: int) -> bool:
        """Count one refusal. Returns whether to record it."""
        now, key = time.monotonic(), (caller.tenant_id, caller.username)
        self._end_before(now)
        refusals = self._open.get(key)
        if refusals is None:
            if len(self._open) >= MAX_CALLERS:
                self._end(next(iter(self._open)))
            refusals = self._open[key] = Refusals(caller, now + MINUTE)
        refusals.caller, refusals.status, refusals.request_id = caller, status, request_id()
        refusals.count += 1
        if refusals.left_out == 1:
            log.warning("refusals_not_recorded", tenant_id=caller.tenant_id, user=caller.username)
        return refusals.left_out == 0

    def take_ended(self) -> list[Refusals]:
        """Return the minutes that ended since the last call, with what they left out."""
        self._end_before(time.monotonic())
        ended, self._ended = self._ended, []
        return ended

    def end_all(self) -> None:
        """End all minutes now, because the process stops."""
        for key in list(self._open):
            self._end(key)

    def _end_before(self, now: float) -> None:
        while self._open and self._open[oldest := next(iter(self._open))].ends_at <= now:
            self._end(oldest)

    def _end(self, key: tuple[str, str]) -> None:
        refusals = self._open.pop(key)
        if refusals.left_out:
            self._ended.append(refusals)
