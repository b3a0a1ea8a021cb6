"""Whether a service lives and can take requests: what it needs, and the probes that tell."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from common.errors import Unavailable
from common.middleware import OPEN_PATHS, json_response, problems
from common.mongo import MongoError
from common.protocol import expect
from common.telemetry import log

CHECK_PATIENCE = 2  # seconds
RETRY_PAUSE = 1  # seconds


class Readiness:
    """What must be there before a service takes requests."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[], Awaitable[object]]] = {}
        self._pending: dict[str, asyncio.Task[None]] = {}

    def check(self, name: str, probe: Callable[[], Awaitable[object]]) -> None:
        """Ask `probe` whenever readiness is asked for; an error of it means that `name` is missing."""
        self._checks[name] = probe

    async def prepare(self, name: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Do something that must be done once before requests, at once or, where a store is away, when it is back."""
        try:
            await attempt()
        except MongoError as error:
            log.warning("not_ready", missing=name, error=type(error).__name__)
            self._pending[name] = asyncio.create_task(self._retry(name, attempt))

    async def missing(self) -> dict[str, str]:
        """What is missing, by name, with the kind of error."""
        found = await asyncio.gather(*map(_trouble, self._checks.values()))
        troubles = {name: trouble for name, trouble in zip(self._checks, found, strict=True) if trouble}
        return {**dict.fromkeys(self._pending, "not prepared yet"), **troubles}

    async def standing(self) -> dict[str, bool]:
        """Whether each of what must be there is."""
        missing = await self.missing()
        return {name: name not in missing for name in (*self._checks, *self._pending)}

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    async def close(self) -> None:
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)

    async def _retry(self, name: str, attempt: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(RETRY_PAUSE)
            try:
                await attempt()
            except MongoError:
                continue
            del self._pending[name]
            return


async def _trouble(probe: Callable[[], Awaitable[object]]) -> str:
    """The kind of error that a probe fails with; "" where it does not."""
    try:
        async with asyncio.timeout(CHECK_PATIENCE):
            await probe()
    except Exception as error:  # noqa: BLE001  a probe may fail in its driver's own ways
        return type(error).__name__
    return ""


READINESS = web.AppKey("readiness", Readiness)


def add_probes(app: web.Application) -> None:
    """`/livez`: the process answers. `/readyz`: everything it needs answers too, else 503 and what is missing."""
    app[READINESS] = Readiness()
    _route(app)
    app.cleanup_ctx.append(_end_preparations)


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
    """Refuse requests until the service's indexes are made: without them the database could not decide."""
    if request.app[READINESS].pending and request.path not in OPEN_PATHS:
        raise Unavailable("The service is starting; try again soon.")
    return await handler(request)


async def _livez(_: web.Request) -> web.Response:
    return json_response({"status": "alive"})


async def _readyz(request: web.Request) -> web.Response:
    missing = await request.app[READINESS].missing()
    if missing:
        return json_response({"status": "not ready", "missing": missing}, status=503)
    return json_response({"status": "ready"})


async def _end_preparations(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[READINESS].close()
