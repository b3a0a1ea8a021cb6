"""Sends administrators' writes and attempted writes to the audit log, and retries while the log does not answer.

The refused writes of one caller are limited, so that nobody hides the refusals of others.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.auth.signing import API_TOKEN_PATTERN, API_TOKEN_PREFIX
from common.errors import Overloaded, Problem
from common.service_client.client import ServiceClient
from common.telemetry import log, request_id
from gateway.forwarding.proxy import AUDIT_DETAILS
from gateway.operations import is_value
from gateway.routing import Target

MAX_REFUSALS = 60  # a minute and caller that are recorded
MINUTE = 60.0  # seconds
MAX_CALLERS = 10_000  # that are counted at once; beyond that, the minute ends early
TIMEOUT = 1.0  # seconds that a caller waits for the log; the entry is written after that, too
RETRY_DELAY = 1.0  # seconds
CLOSE_TIMEOUT = 5.0  # seconds that the gateway's shutdown waits for the log
MAX_PENDING = 10_000  # entries; beyond that, the oldest are in the gateway's own log only
LEFT_OUT = "refused_writes"  # the operation of an entry that stands for many refused writes
SECRETS = frozenset(["{auth_token}"])  # path parts whose values must not be recorded
_API_TOKEN = re.compile(API_TOKEN_PATTERN)  # Users paste a whole token where its id belongs.

Entry = dict[str, Any]


@dataclass
class Refusals:
    """The refused writes of one user or API token in a minute; `caller`, `status` and `request_id` are of the last."""

    caller: Caller
    status: int = 0
    request_id: str = ""
    count: int = 0

    @property
    def left_out(self) -> int:
        """How many are not recorded one by one."""
        return max(0, self.count - MAX_REFUSALS)


class RefusalCounts:
    """Counts refused writes by caller, in minutes that all callers share."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Refusals] = {}
        self._ended: list[Refusals] = []
        self._ends_at = 0.0

    def count(self, caller: Caller, status: int) -> bool:
        """Count one refusal. Returns whether to record it."""
        key = (caller.tenant_id, caller.username)
        is_full = len(self._counts) >= MAX_CALLERS and key not in self._counts
        if is_full or time.monotonic() >= self._ends_at:
            self.end_minute()
        refusals = self._counts.setdefault(key, Refusals(caller))
        refusals.caller, refusals.status, refusals.request_id = caller, status, request_id()
        refusals.count += 1
        if refusals.left_out == 1:
            log.warning("refusals_not_recorded", tenant_id=caller.tenant_id, user=caller.username)
        return refusals.left_out == 0

    def take_ended(self) -> list[Refusals]:
        """Return what the minutes left out that ended since the last call."""
        if time.monotonic() >= self._ends_at:
            self.end_minute()
        ended, self._ended = self._ended, []
        return ended

    def end_minute(self) -> None:
        """End the minute now: it is over, too many callers were counted, or the process stops."""
        self._ended += [refusals for refusals in self._counts.values() if refusals.left_out]
        self._counts.clear()
        self._ends_at = time.monotonic() + MINUTE


class AuditRecorder:
    """Records requests after their end.

    A write is not undone if its entry cannot be written. The gateway's own log then has the whole entry, and the
    recorder retries until the audit log has it. The gateway chooses the entry's id, so a retry makes no second entry.
    """

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: deque[tuple[Caller, Entry]] = deque(maxlen=MAX_PENDING)
        self._refusals = RefusalCounts()

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    async def record(
        self, request: web.Request, caller: Caller, target: Target, execution: Awaitable[web.StreamResponse]
    ) -> web.StreamResponse:
        """Execute a request and record it. Raises what the execution raises.

        Audited operations are recorded always, others if the service sent details for the log. A preview is no write.
        """
        status = 500  # while there is no response: its effect is unknown
        try:
            response = await execution
        except Problem as problem:
            status = problem.status
            raise
        else:
            status = response.status
            return response
        finally:
            is_write = target.operation.audited or AUDIT_DETAILS in request
            is_preview = status < 400 and "preview" in request.get(AUDIT_DETAILS, {}).get("target", {})
            if is_write and not is_preview and self._should_record(caller, status):
                task = asyncio.create_task(self._record(caller, _entry(request, caller, target, status)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                if status < 500:  # A caller who waited for an unavailable service waits no longer.
                    await asyncio.wait({task}, timeout=TIMEOUT)

    async def retry_pending(self) -> None:
        """Send the pending entries again, and one for each caller whose refused writes were left out."""
        self._pending.extend((refusals.caller, _summary(refusals)) for refusals in self._refusals.take_ended())
        for _ in range(len(self._pending)):
            first = self._pending[0]  # It stays in the queue until it is delivered, so that a shutdown retries it.
            if not await self._deliver(*first):
                self._pending.rotate(-1)
            elif self._pending[0] is first:
                self._pending.popleft()

    async def pause(self) -> None:
        await asyncio.sleep(RETRY_DELAY)

    async def close(self) -> None:
        """Wait for running deliveries, and retry the pending entries once within `CLOSE_TIMEOUT`."""
        await asyncio.gather(*self._tasks)
        self._refusals.end_minute()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.retry_pending()
        if self._pending:
            log.error("audit_not_recorded", entries=[entry for _, entry in self._pending])

    async def _record(self, caller: Caller, entry: Entry) -> None:
        if not await self._deliver(caller, entry):
            self._pending.append((caller, entry))

    async def _deliver(self, caller: Caller, entry: Entry) -> bool:
        try:
            await self._auth_service.json(caller, "record_audit", entry)
        except Problem as problem:
            log.error("audit_delayed", entry=entry, detail=problem.detail)
            return False
        return True

    def _should_record(self, caller: Caller, status: int) -> bool:
        """Whether to record a request: every write, and the caller's first refusals of a minute."""
        is_refusal = 400 <= status < 500 or status == Overloaded.status
        return not is_refusal or self._refusals.count(caller, status)


AUDIT_RECORDER = web.AppKey("audit_recorder", AuditRecorder)


def _entry(request: web.Request, caller: Caller, target: Target, status: int) -> Entry:
    parts = zip(target.operation.parts, target.segments, strict=False)
    values = {part.strip("{}"): value for part, value in parts if is_value(part) and part not in SECRETS}
    details = request.get(AUDIT_DETAILS) or {"target": values, "changes": {}}
    target_texts = {name: _API_TOKEN.sub(f"{API_TOKEN_PREFIX}…", text) for name, text in details["target"].items()}
    return {
        **_by(caller, target_texts),
        "changes": details["changes"],
        "operation": target.operation.name,
        "status": status,
        "request_id": request_id(),
    }


def _summary(refusals: Refusals) -> Entry:
    return {
        **_by(refusals.caller, {"left_out": str(refusals.left_out)}),
        "changes": {},
        "operation": LEFT_OUT,
        "status": refusals.status,
        "request_id": refusals.request_id,
    }


def _by(caller: Caller, target: Mapping[str, str]) -> Entry:
    creator = {"token_created_by": caller.creator} if caller.creator else {}
    return {
        "id": uuid4().hex,
        "at": datetime.now(UTC).isoformat(),
        "user": caller.username,
        "ip": caller.ip,
        "target": {**target, **creator},
    }
