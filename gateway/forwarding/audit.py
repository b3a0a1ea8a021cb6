"""Tells the audit log of what administrators write and try to write, also when the log is away for a while."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from common.auth.callers import Caller
from common.errors import Overloaded, Problem
from common.service_client.client import ServiceClient
from common.telemetry import log, request_id
from gateway.forwarding.proxy import AUDIT_DETAILS
from gateway.operations import is_value
from gateway.routing.target import Target

TIMEOUT = 1.0  # seconds that a caller waits for the log; it is written after that, too
PAUSE = 1.0  # seconds between two attempts
CLOSE_TIMEOUT = 5.0  # seconds that our end waits for it
WAITING = 10_000  # entries that are kept for a log that is away; of more, the oldest are in our own log alone
REFUSALS = 60  # a minute and tenant that are recorded one by one
MINUTE = 60.0  # seconds
SECRETS = frozenset(["auth_token"])  # values of addresses that nobody may read

Entry = dict[str, Any]


class AuditRecorder:
    """Records what is done, once it is done.

    A write is not undone because its record cannot be written: the entry goes to our own log with everything that is
    in it, and is told again until the audit log has it. An entry has its id from here, so that it is kept once.
    """

    def __init__(self, auth_service: ServiceClient) -> None:
        self._auth_service = auth_service
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[Caller, Entry]] = deque(maxlen=WAITING)
        self._refusals: dict[str, tuple[float, int]] = {}

    @property
    def waiting(self) -> int:
        """How many entries the log has not taken yet."""
        return len(self._waiting)

    async def recording(
        self, request: web.Request, caller: Caller, target: Target, answer: Awaitable[web.StreamResponse]
    ) -> web.StreamResponse:
        """The answer, after it is on record: of an audited operation always, of others where the service asks for it.

        Raises what `answer` raises, which is on record too.
        """
        status = 500  # of whatever ends without an answer, a caller who has gone or our own end: what it did is unknown
        try:
            response = await answer
            status = response.status
        except Problem as problem:
            status = problem.status
            raise
        else:
            return response
        finally:
            if (target.operation.audited or AUDIT_DETAILS in request) and self._should_record(caller, status):
                task = asyncio.create_task(self._tell(caller, _entry(request, caller, target, status)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                if status < 500:  # Who has waited for a service that is away waits no longer.
                    await asyncio.wait({task}, timeout=TIMEOUT)

    async def retry_pending(self) -> None:
        """Tell the log again what it has not taken."""
        for _ in range(len(self._waiting)):
            first = self._waiting[0]  # It stays while it is told: it waits until it is taken, our end included.
            if not await self._is_taken(*first):
                self._waiting.rotate(-1)
            elif self._waiting[0] is first:
                self._waiting.popleft()

    async def pause(self) -> None:
        await asyncio.sleep(PAUSE)

    async def close(self) -> None:
        """Wait for what is being told, and try the rest once more, as far as there is time."""
        await asyncio.gather(*self._tasks)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.retry_pending()
        if self._waiting:
            log.error("audit_not_recorded", entries=[entry for _, entry in self._waiting])

    async def _tell(self, caller: Caller, entry: Entry) -> None:
        if not await self._is_taken(caller, entry):
            self._waiting.append((caller, entry))

    async def _is_taken(self, caller: Caller, entry: Entry) -> bool:
        try:
            await self._auth_service.json(caller, "record_audit", entry)
        except Problem as problem:
            log.error("audit_delayed", entry=entry, detail=problem.detail)
            return False
        return True

    def _should_record(self, caller: Caller, status: int) -> bool:
        """Whether this is recorded: every write, and of what is refused enough to see what goes on."""
        if not (400 <= status < 500 or status == Overloaded.status):
            return True
        now = time.monotonic()
        since, count = self._refusals.get(caller.tenant_id, (now, 0))
        if now - since > MINUTE:
            since, count = now, 0
        self._refusals[caller.tenant_id] = (since, count + 1)
        if count == REFUSALS:
            log.warning("refusals_not_recorded", tenant_id=caller.tenant_id, user=caller.username)
        return count < REFUSALS


def _entry(request: web.Request, caller: Caller, target: Target, status: int) -> Entry:
    parts = zip(target.operation.parts, target.segments, strict=False)
    named = {part.strip("{}"): value for part, value in parts if is_value(part)}
    about = request.get(AUDIT_DETAILS) or {
        "target": {name: named[name] for name in named.keys() - SECRETS},
        "changes": {},
    }
    return {
        **about,
        "id": uuid4().hex,
        "at": datetime.now(UTC).isoformat(),
        "operation": target.operation.word,
        "user": caller.username,
        "ip": caller.ip,
        "status": status,
        "request_id": request_id(),
    }
