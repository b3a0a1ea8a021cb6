"""Whether a service lives and can take requests: what it needs, and the probes that tell."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from common.errors import Unavailable
from common.http.connection_limits import expect
from common.http.middleware import OPEN_PATHS, json_response, problems
from common.mongo import MongoError
from common.mongo.schema import SchemaError
from common.telemetry import log

CHECK_TIMEOUT = 2  # seconds
RETRY_PAUSE = 1  # seconds
START_TIMEOUT = 5  # seconds that a preparation is waited for until it goes on beside the probes

Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Check:
    probe: Callable[[], Awaitable[object]]
    prepared: bool


class Readiness:
    """What must be there before a service takes requests."""

    def __init__(self) -> None:
        self._checks: dict[str, _Check] = {}
        self._preparations: list[str] = []
        self._pending: dict[str, str] = {}  # what is not prepared, and how far it is
        self._then: list[Callable[[], Awaitable[None]]] = []
        self._prepared = asyncio.Event()
        self.stopping = False

    def check(self, name: str, probe: Callable[[], Awaitable[object]], *, prepared: bool = False) -> None:
        """Ask `probe` whenever readiness is asked for; an error of it means that `name` is missing.

        One that reads what is in a database is asked only once everything is `prepared`.
        """
        self._checks[name] = _Check(probe, prepared)

    @asynccontextmanager
    async def preparing(self, name: str, attempt: Callable[[Tell], Awaitable[None]]) -> AsyncIterator[None]:
        """Do something that must be done once before requests; `attempt` tells how far it is.

        The block begins when that is done. It begins before, and the rest is done beside it, where that takes its time
        or fails; then it is tried again and again.
        """
        self._preparations.append(name)
        self._pending[name] = "not prepared yet"
        tried = asyncio.Event()
        task = asyncio.create_task(self._prepare(name, attempt, tried))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_TIMEOUT):
                    await tried.wait()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def prepared(self) -> None:
        """Return once everything is prepared."""
        if self._pending:
            await self._prepared.wait()

    async def then(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something once everything is prepared: now where it is."""
        if self._pending:
            self._then.append(work)
        else:
            await work()

    async def missing(self) -> dict[str, str]:
        """What is missing, by name, with the kind of error."""
        found = await asyncio.gather(*map(self._trouble, self._checks.values()))
        troubles = {name: trouble for name, trouble in zip(self._checks, found, strict=True) if trouble}
        return {**self._pending, **troubles}

    async def standing(self) -> dict[str, bool]:
        """Whether each of what must be there is."""
        missing = await self.missing()
        return {name: name not in missing for name in (*self._checks, *self._preparations)}

    def stop(self) -> None:
        """From now on nobody new is to be sent here, though whoever comes is still served."""
        self.stopping = True

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    async def _prepare(self, name: str, attempt: Callable[[Tell], Awaitable[None]], tried: asyncio.Event) -> None:
        while not await self._succeeds(name, attempt):
            tried.set()
            await asyncio.sleep(RETRY_PAUSE)
        del self._pending[name]
        if not self._pending:
            for work in self._then:
                await work()
            self._prepared.set()
        tried.set()

    async def _succeeds(self, name: str, attempt: Callable[[Tell], Awaitable[None]]) -> bool:
        def tell(text: str) -> None:
            self._pending[name] = text

        before = self._pending[name]
        try:
            await attempt(tell)
        except Exception as error:  # noqa: BLE001  whatever it was, the probes must tell and it must be tried again
            expected = isinstance(error, MongoError | SchemaError)
            why = str(error) if isinstance(error, SchemaError) else type(error).__name__
            if why != before:
                log.warning("not_ready", missing=name, error=why, exc_info=None if expected else error)
            tell(why)
            return False
        return True

    async def _trouble(self, check: _Check) -> str:
        """The kind of error that a probe fails with; "" where it does not."""
        if self._pending and check.prepared:
            return "not asked yet"
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await check.probe()
        except Exception as error:  # noqa: BLE001  a probe may fail in its driver's own ways
            return type(error).__name__
        return ""


READINESS = web.AppKey("readiness", Readiness)


def add_probes(app: web.Application) -> None:
    """`/livez`: the process answers. `/readyz`: everything it needs answers too, else 503 and what is missing.

    A service that was asked to stop says 503 too, and no more than that.
    """
    app[READINESS] = Readiness()
    _route(app)


def probes_of(app: web.Application) -> web.Application:
    """The same probes, to be served apart from everything else."""
    probes = web.Application(middlewares=[problems])
    probes[READINESS] = app[READINESS]
    _route(probes)
    return probes


def _route(app: web.Application) -> None:
    app.router.add_get("/livez", _livez, expect_handler=expect)
    app.router.add_get("/readyz", _readyz, expect_handler=expect)


@web.middleware
async def only_when_ready(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests until the service's database is as this program needs it."""
    if request.app[READINESS].pending and request.path not in OPEN_PATHS:
        raise Unavailable("The service is starting; try again soon.")
    return await handler(request)


async def _livez(_: web.Request) -> web.Response:
    return json_response({"status": "alive"})


async def _readyz(request: web.Request) -> web.Response:
    readiness = request.app[READINESS]
    if readiness.stopping:
        return json_response({"status": "stopping"}, status=503)
    missing = await readiness.missing()
    if missing:
        return json_response({"status": "not ready", "missing": missing}, status=503)
    return json_response({"status": "ready"})
