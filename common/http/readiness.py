"""The probes `/livez` and `/readyz`: whether the process runs, and whether its dependencies answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from aiohttp.typedefs import Handler

from common.concurrency.background import running
from common.errors import Unavailable
from common.http.connection_limits import expect
from common.http.middleware import OPEN_PATHS, json_response
from common.mongo import MongoError
from common.mongo.schema import SchemaError
from common.telemetry import log

CHECK_TIMEOUT = 2  # seconds
RETRY_PAUSE = 1  # seconds
START_TIMEOUT = 5  # seconds to wait for a preparation before the service starts without it

Probe = Callable[[], Awaitable[object]]
Report = Callable[[str], None]


class Readiness:
    """The dependencies and preparations of a service."""

    def __init__(self) -> None:
        self._checks: dict[str, Probe] = {}
        self._checks_of_schema: set[str] = set()
        self._preparations: list[str] = []
        self.pending: dict[str, str] = {}  # unfinished preparations and their progress
        self._callbacks: list[Callable[[], Awaitable[None]]] = []
        self._prepared = asyncio.Event()
        self.stopping = False  # `/readyz` fails then, though requests are still served.

    def check(self, name: str, probe: Probe, *, prepared: bool = False) -> None:
        """Add a dependency: an error of `probe` means that `name` is missing.

        With `prepared`, the probe needs the database's final schema, so it runs after all preparations only.
        """
        self._checks[name] = probe
        if prepared:
            self._checks_of_schema.add(name)

    @asynccontextmanager
    async def preparing(self, name: str, attempt: Callable[[Report], Awaitable[None]]) -> AsyncIterator[None]:
        """Run a preparation that requests need, and repeat it until it succeeds; `attempt` reports its progress.

        The block starts when it succeeded, failed once, or took longer than `START_TIMEOUT`; it then goes on in the
        background.
        """
        self._preparations.append(name)
        self.pending[name] = "not prepared yet"
        attempted = asyncio.Event()
        async with running(self._prepare(name, attempt, attempted)):
            with suppress(TimeoutError):
                async with asyncio.timeout(START_TIMEOUT):
                    await attempted.wait()
            yield

    async def prepared(self) -> None:
        """Wait for all preparations."""
        if self.pending:
            await self._prepared.wait()

    async def then(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` after all preparations, or now if they are done."""
        if self.pending:
            self._callbacks.append(work)
        else:
            await work()

    async def missing(self) -> dict[str, str]:
        """The missing dependencies, with the class of the error or the progress."""
        results = await asyncio.gather(*map(self._error_of, self._checks))
        errors = {name: error for name, error in zip(self._checks, results, strict=True) if error}
        return {**self.pending, **errors}

    async def states(self) -> dict[str, bool]:
        """Whether each dependency and preparation is there."""
        missing = await self.missing()
        return {name: name not in missing for name in (*self._checks, *self._preparations)}

    async def _prepare(self, name: str, attempt: Callable[[Report], Awaitable[None]], attempted: asyncio.Event) -> None:
        while not await self._succeeds(name, attempt):
            attempted.set()
            await asyncio.sleep(RETRY_PAUSE)
        del self.pending[name]
        if not self.pending:
            for work in self._callbacks:
                await work()
            self._prepared.set()
        attempted.set()

    async def _succeeds(self, name: str, attempt: Callable[[Report], Awaitable[None]]) -> bool:
        def report(text: str) -> None:
            self.pending[name] = text

        before = self.pending[name]
        try:
            await attempt(report)
        except Exception as error:  # noqa: BLE001  any error is reported and tried again
            expected = isinstance(error, MongoError | SchemaError)
            why = str(error) if isinstance(error, SchemaError) else type(error).__name__
            if why != before:
                log.warning("not_ready", missing=name, error=why, exc_info=None if expected else error)
            report(why)
            return False
        return True

    async def _error_of(self, name: str) -> str:
        """The class of a probe's error; "" for none."""
        if self.pending and name in self._checks_of_schema:
            return "not asked yet"
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self._checks[name]()
        except Exception as error:  # noqa: BLE001  a probe may fail in its driver's own ways
            return type(error).__name__
        return ""


READINESS = web.AppKey("readiness", Readiness)


def add_probes(app: web.Application, readiness: Readiness | None = None, **details: str) -> None:
    """Add `/livez`, and `/readyz`, which answers 503 with the missing dependencies, or while the service stops.

    `readiness` is that of another application with the same probes. `/livez` also answers with `details`.
    """

    async def livez(_: web.Request) -> web.Response:
        return json_response({"status": "alive", **details})

    app[READINESS] = readiness or Readiness()
    app.router.add_get("/livez", livez, expect_handler=expect)
    app.router.add_get("/readyz", _readyz, expect_handler=expect)


@web.middleware
async def only_when_ready(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests until all preparations are done."""
    if request.app[READINESS].pending and request.path not in OPEN_PATHS:
        raise Unavailable("The service is starting; try again soon.")
    return await handler(request)


async def _readyz(request: web.Request) -> web.Response:
    readiness = request.app[READINESS]
    if readiness.stopping:
        return json_response({"status": "stopping"}, status=503)
    missing = await readiness.missing()
    if missing:
        return json_response({"status": "not ready", "missing": missing}, status=503)
    return json_response({"status": "ready"})
