"""Due work: records that say what is to be done with them and when, and the workers that do it.

Work stands in the record that it belongs to, so one update changes the record and makes the work due:

    work.<kind>: {due, since, lease, attempts}

- `due` is when the work may be done. A lease moves it to the end of the lease.
- `since` is when it became due first.
- `lease` is the token of the last holder. Only the last holder has an effect, and only until its lease has ended.
- `attempts` counts the leases. A holder that gives the work back is not counted.

All times are by the clock of the database. After a crash, or a pause of a process, work is done again: a handler must
be able to repeat it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import uuid4

from motor.motor_asyncio import AsyncIOMotorCollection
from pymongo import ASCENDING, IndexModel, ReturnDocument

from common.concurrency.background import log_failure, repeating, run_leased
from common.mongo import Document, MongoError
from common.telemetry import log

Record = TypeVar("Record")
NOW = "$$NOW"
NEVER = datetime.fromtimestamp(0, UTC)  # before any date of work
RENEWALS = 6  # in the time of a lease


@dataclass(eq=False)
class Lease(Generic[Record]):
    """The right to do the work of a record. `attempts` counts this lease, too."""

    record: Record
    key: Mapping[str, Any]  # the query for the record
    token: str
    attempts: int
    has_ended: bool = False  # here; it may have ended in the database

    @property
    def tenant_id(self) -> str:
        return str(self.key["tenant_id"])


Handle = Callable[[Lease[Record]], Coroutine[Any, Any, None]]


class Postponed(Exception):
    """No work of this kind can be done now. The record is not at fault, so the attempt does not count.

    The worker logs `event`, and leases nothing for `pause` seconds, or until its next round.
    """

    def __init__(self, event: str, pause: float = 0, /, **log_fields: str) -> None:
        super().__init__(event)
        self.event = event
        self.pause = pause
        self.log_fields = log_fields


class WorkQueue(Generic[Record]):
    """The due work of one kind in a collection, of the records that meet `condition`.

    - `parse` makes the record that handlers get.
    - `lease_seconds` without renewal pass until another process may do the work.
    - The pause after a failed attempt begins with `first_pause` seconds, and doubles up to `longest_pause`.
    - Work is done `delay` seconds after it is due. A change of a setting then has an effect on all records.
    """

    def __init__(
        self,
        collection: AsyncIOMotorCollection[Document],
        kind: str,
        parse: Callable[[Document], Record],
        *,
        condition: Mapping[str, Any] | None = None,
        lease_seconds: float = 30,
        first_pause: float = 30,
        longest_pause: float = 3600,
        delay: float = 0,
    ) -> None:
        self.kind = kind
        self.lease_seconds = lease_seconds
        self._collection = collection
        self._parse = parse
        self._condition = dict(condition or {})
        self._pauses = first_pause, longest_pause
        self._delay = delay
        self._path = f"work.{kind}"

    async def lease(self, after: str = "", without: Collection[str] = (), **which: Any) -> Lease[Record] | None:
        """Lease the record that is due the longest, of the next tenant after this one and none of those `without`.

        `which` are further conditions. None if there is no such record.
        """
        token = uuid4().hex
        fields = {
            f"{self._path}.due": self._from_now(self.lease_seconds),
            f"{self._path}.lease": token,
            f"{self._path}.attempts": {"$add": [{"$ifNull": [f"${self._path}.attempts", 0]}, 1]},
        }
        document = await self._collection.find_one_and_update(
            {
                "tenant_id": {"$gt": after, "$nin": list(without)},
                **is_waiting(self.kind),
                **self._condition,
                **which,
                "$expr": {"$lte": [f"${self._path}.due", self._from_now(0)]},
            },
            [{"$set": fields}],
            sort=[("tenant_id", ASCENDING), (f"{self._path}.due", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        if document is None:
            return None
        key = {"tenant_id": document["tenant_id"], "_id": document["_id"]}
        return Lease(self._parse(document), key, token, document["work"][self.kind]["attempts"])

    async def renew(self, lease: Lease[Record], fields: Mapping[str, Any] | None = None) -> bool:
        """Extend the lease, and set fields of the record.

        False if another process has the lease, or the record does not meet the condition any more.
        """
        return await self._update(lease, {f"{self._path}.due": self._from_now(self.lease_seconds), **(fields or {})})

    async def finish(self, lease: Lease[Record], fields: Mapping[str, Any] | None = None) -> bool:
        """Set fields of the record, and remove the work, in one update. False if the lease has ended before."""
        return await self._end(lease, {self._path: "$$REMOVE", **(fields or {})})

    async def repeat(
        self, lease: Lease[Record], due: float | datetime, fields: Mapping[str, Any] | None = None
    ) -> bool:
        """Finish the work, which is due again in so many seconds or at a time. Otherwise as `finish`."""
        work = {"due": self._at(due), "since": self._at(due), "attempts": "$$REMOVE"}
        return await self._end(lease, {**self._paths(work), **(fields or {})})

    async def retry(
        self, lease: Lease[Record], fields: Mapping[str, Any] | None = None, pause: float | None = None
    ) -> bool:
        """Make the work due again after a failure, in `pause` seconds or the usual time. Otherwise as `finish`."""
        first, longest = self._pauses
        seconds = min(first * 2 ** min(lease.attempts - 1, 20), longest) if pause is None else pause
        return await self._end(lease, {**self._paths({"due": self._at(seconds)}), **(fields or {})})

    async def release(self, lease: Lease[Record], pause: float = 0) -> None:
        """Give the work back undone, due in `pause` seconds; the attempt does not count."""
        await self._end(lease, self._paths({"due": self._at(pause), "attempts": lease.attempts - 1}))

    async def backlog(self) -> tuple[int, float]:
        """The number of records with work, and for how many seconds the oldest of them waits; 0 without one."""
        since = f"{self._path}.since"
        waiting = {"tenant_id": {"$gt": ""}, f"{self._path}.due": {"$gt": NEVER}}  # The index alone answers it.
        number, oldest = await asyncio.gather(
            self._collection.count_documents(waiting),
            self._collection.find_one(
                {since: {"$exists": True}}, {"age": {"$subtract": [NOW, f"${since}"]}}, sort=[(since, ASCENDING)]
            ),
        )
        return number, max(0.0, oldest["age"] / 1000) if oldest else 0.0

    async def _end(self, lease: Lease[Record], fields: Document) -> bool:
        lease.has_ended = True
        token = {} if self._path in fields else {f"{self._path}.lease": "$$REMOVE"}
        return await self._update(lease, {**fields, **token})

    async def _update(self, lease: Lease[Record], fields: Document) -> bool:
        query = {**lease.key, **self._condition, f"{self._path}.lease": lease.token}
        return (await self._collection.update_one(query, [{"$set": fields}])).matched_count == 1

    def _paths(self, work: Document) -> Document:
        return {f"{self._path}.{name}": value for name, value in work.items()}

    def _at(self, due: float | datetime) -> Any:
        return {"$literal": due} if isinstance(due, datetime) else self._from_now(due)

    def _from_now(self, seconds: float) -> Document:
        return {"$add": [NOW, (seconds - self._delay) * 1000]}


def due_now(kind: str) -> Document:
    """The fields that make work due, for another update of the record with a pipeline; a lease of it ends."""
    path = f"work.{kind}"
    return {
        f"{path}.due": NOW,
        f"{path}.since": {"$ifNull": [f"${path}.since", NOW]},
        f"{path}.lease": "$$REMOVE",
        f"{path}.attempts": "$$REMOVE",
    }


def is_waiting(kind: str) -> Document:
    """The condition that a record has work, due or leased."""
    return {f"work.{kind}.due": {"$exists": True}}


def work_indexes(kind: str, *, backlog: bool = False) -> list[IndexModel]:
    """The indexes that leases need, and `backlog`."""
    names = [["tenant_id", f"work.{kind}.due"], *([[f"work.{kind}.since"]] if backlog else [])]
    return [IndexModel(each, partialFilterExpression={each[-1]: {"$exists": True}}) for each in names]


async def do_leased(queue: WorkQueue[Record], lease: Lease[Record], handle: Handle[Record]) -> None:
    """Do the work of a lease, which is renewed meanwhile. It is cancelled if the lease is lost.

    The work is given back if this call is cancelled.
    """

    async def renew() -> bool:
        return await queue.renew(lease) or lease.has_ended

    names = {"kind": queue.kind, "tenant_id": lease.tenant_id}
    try:
        await run_leased(handle(lease), renew, queue.lease_seconds / RENEWALS, **names)
    except asyncio.CancelledError:  # The process stops; no other one must wait for the end of the lease.
        await _try_to_end(queue, lease, queue.release(lease))
        raise


async def _try_to_end(queue: WorkQueue[Record], lease: Lease[Record], ending: Awaitable[object]) -> None:
    """End a lease; without the database it ends by itself, later."""
    try:
        await ending
    except MongoError as error:
        log.warning("lease_not_ended", kind=queue.kind, tenant_id=lease.tenant_id, error=type(error).__name__)


class Worker(Generic[Record]):
    """Does the due work of a queue, of one tenant after another.

    `handle` gets a lease, which is renewed meanwhile, and ends it: by `finish`, `repeat` or `retry` of the queue. It is
    cancelled if the lease is lost. When it is cancelled or raises `Postponed`, the work is given back. After any other
    error the work is due again later, which delays no other record.
    """

    def __init__(
        self,
        queue: WorkQueue[Record],
        handle: Handle[Record],
        *,
        limit: int = 1,
        pause: float = 1,
        one_per_tenant: bool = False,
        skip: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """At most `limit` records at once, and with `one_per_tenant` one of each tenant; none of the tenants `skip`.

        The worker looks for work every `pause` seconds, and when it is woken.
        """
        self._queue = queue
        self._handle = handle
        self._pause = pause
        self._one_per_tenant = one_per_tenant
        self._skip = skip
        self._slots = asyncio.Semaphore(limit)
        self._tasks: dict[asyncio.Task[None], str] = {}  # with their tenants
        self._wakeup = asyncio.Event()
        self._last = ""  # the tenant of the last lease
        self._resume_at = 0.0  # by the clock of the event loop

    def wake(self) -> None:
        """Look for work now."""
        self._wakeup.set()

    @asynccontextmanager
    async def running(self, after: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[None]:
        """Work within the block, once `after` has returned. At the end, all work under way is given back."""
        try:
            async with repeating(self._queue.kind, self._start_due, self._wait, after=after):
                yield
        finally:
            await self._cancel()

    async def run_due(self) -> None:
        """Do all work that is due, and return when there is none."""
        self.wake()
        try:
            while self._tasks or self._wakeup.is_set():
                await self._start_due()
                if self._tasks:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._cancel()

    async def _do(self, lease: Lease[Record]) -> None:
        queue = self._queue
        try:
            await do_leased(queue, lease, self._handle)
        except Postponed as reason:
            self._postpone(reason)
            await _try_to_end(queue, lease, queue.release(lease))
        except Exception as error:  # noqa: BLE001  one bad record must not stop the others
            log_failure(error, name=queue.kind, tenant_id=lease.tenant_id, record=str(lease.key["_id"]))
            await _try_to_end(queue, lease, queue.retry(lease))

    async def _start_due(self) -> None:
        """Start the work that is due; wait for a free slot while there is more."""
        self._wakeup.clear()
        while True:
            await self._slots.acquire()
            lease = None
            try:
                lease = await self._next()
            finally:
                if lease is None:
                    self._slots.release()
            if lease is None:
                return
            task = asyncio.create_task(self._do(lease), name=self._queue.kind)
            self._tasks[task] = lease.tenant_id
            task.add_done_callback(self._ended)

    async def _next(self) -> Lease[Record] | None:
        if asyncio.get_running_loop().time() < self._resume_at:
            return None
        active = self._tasks.values() if self._one_per_tenant else ()
        without = {*active, *self._skip()}
        lease = await self._queue.lease(self._last, without)
        if lease is None and self._last:
            lease = await self._queue.lease("", without)
        self._last = lease.tenant_id if lease else ""
        return lease

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._slots.release()
        if self._one_per_tenant:
            self.wake()  # The tenant may have more work.

    def _postpone(self, reason: Postponed) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._resume_at:  # The first one of this round.
            log.warning(reason.event, **reason.log_fields)
        self._resume_at = now + max(reason.pause, self._pause)

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._wakeup.wait()

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
