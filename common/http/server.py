"""Runs services: creates their applications, serves them at their addresses with their probes, stops them."""

import asyncio
import ctypes
import gc
import platform
import resource
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, cast

import uvloop
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.core import Metric

from common.auth.internal_tokens import Callers
from common.auth.signing import Keys
from common.concurrency.background import running
from common.http.connection_limits import Runner, expect
from common.http.middleware import (
    PENDING,
    json_response,
    observe_requests,
    only_when_ready,
    problems,
    require_internal_token,
    tracing_middlewares,
)
from common.mongo import MongoError
from common.mongo.schema import SchemaError
from common.settings import BadSetting, ServiceSettings, Settings, load
from common.telemetry import configure_logs, log, software_version, traces
from common.telemetry.metrics import METRICS, Metrics, gauges, metrics_handler

CHECK_TIMEOUT = 2  # seconds
RETRY_PAUSE = 1  # seconds
START_TIMEOUT = 5  # seconds to wait for a preparation before the service starts without it

Probe = Callable[[], Awaitable[object]]
Report = Callable[[str], None]
KEEP_ALIVE = 75  # seconds; aiohttp's default of an hour would keep slow senders connected
SHUTDOWN_TIMEOUT = 10  # seconds for running requests to end
# Seconds in which load balancers see `/readyz` fail, and then as many again for idle connections to be closed by their
# clients; our own clients reuse none that was idle for half of it.
DRAIN_TIMEOUT = 2.0
BACKLOG = 4096  # connections that wait to be accepted, unless the system allows fewer
# Between two runs of the garbage collector. Running requests have some thousand, which 700 visits again and again.
NEW_OBJECTS = 10_000
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
Connect = Callable[[web.Application], AsyncIterator[None]]


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

    app[READINESS] = readiness = readiness or Readiness()
    app[PENDING] = readiness.pending
    app.router.add_get("/livez", livez, expect_handler=expect)
    app.router.add_get("/readyz", _readyz, expect_handler=expect)


async def _readyz(request: web.Request) -> web.Response:
    readiness = request.app[READINESS]
    if readiness.stopping:
        return json_response({"status": "stopping"}, status=503)
    missing = await readiness.missing()
    if missing:
        return json_response({"status": "not ready", "missing": missing}, status=503)
    return json_response({"status": "ready"})


@dataclass(frozen=True)
class Service(Generic[Settings]):
    """One service: its name, its settings and its application. `uvloop` is off for a service that uses `sendfile`."""

    name: str
    settings: type[Settings]
    create_app: Callable[[Settings], web.Application]
    uvloop: bool = True


def service_app(
    name: str,
    keys: Keys,
    routes: Iterable[web.AbstractRouteDef],
    connect: Connect,
    *,
    access_log: bool,
    open_operations: frozenset[str] = frozenset(),
) -> web.Application:
    """The application of a service behind the gateway; its routes require an internal token."""
    callers = Callers(keys, service=name)
    authenticate = require_internal_token(callers, open_operations=open_operations)
    app = watched_app(name, connect, only_when_ready, authenticate, access_log=access_log, callers=callers)
    for route in cast("Iterable[web.RouteDef]", routes):
        app.add_routes([web.route(route.method, route.path, route.handler, expect_handler=expect, **route.kwargs)])
    return app


def watched_app(
    name: str, connect: Connect, *middlewares: Middleware, access_log: bool, callers: Callers | None = None
) -> web.Application:
    """An application with probes, metrics, traces and, if wanted, a log line for each request."""
    metrics = Metrics(name)
    observe = observe_requests(metrics.requests, logged=access_log)
    app = web.Application(middlewares=[*tracing_middlewares(callers), observe, problems, *middlewares])
    app[METRICS] = metrics
    add_probes(app)

    async def ready() -> Sequence[Metric]:
        states = await app[READINESS].states()
        text = "1 where what the service needs is there, 0 where it is missing."
        return [gauges("pkgrepo_ready", text, states.items(), label="dependency", service=name)]

    metrics.add_source("ready", ready, cached=False)
    app.cleanup_ctx.extend([connect, metrics.running])
    return app


def management_of(app: web.Application, *others: web.Application) -> web.Application:
    """The application for operators: the probes of `app`, and the metrics of all applications of this process.

    Only here `/livez` says the version: strangers reach the probes of `app`.
    """
    management = web.Application(middlewares=[problems])
    add_probes(management, app[READINESS], version=software_version())
    handler = metrics_handler([each[METRICS] for each in (app, *others)])
    management.router.add_get("/metrics", handler, expect_handler=expect)
    return management


@asynccontextmanager
async def serving(
    app: web.Application, listen: str, *, drain: float = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve at `host:port`, `[host]:port` or `unix:/path`, and yield the address, with a free port for port 0.

    With `tls` a port serves https. At the end `/readyz` fails, and requests are still served for `drain` seconds; then
    idle connections have as long again to be closed by their clients.
    """
    timeouts: dict[str, Any] = {"keepalive_timeout": KEEP_ALIVE, "shutdown_timeout": SHUTDOWN_TIMEOUT}
    runner = Runner(app, access_log=None, auto_decompress=False, **timeouts)
    await runner.setup()
    try:
        if listen.startswith("unix:"):
            await web.UnixSite(runner, listen.removeprefix("unix:"), backlog=BACKLOG).start()
            yield listen
        else:
            host, _, port = listen.rpartition(":")
            options: dict[str, Any] = {"backlog": BACKLOG, "ssl_context": tls}
            await web.TCPSite(runner, host.strip("[]"), int(port), **options).start()
            yield f"{'https' if tls else 'http'}://{host}:{runner.addresses[0][1]}"
    finally:
        if drain:
            app[READINESS].stopping = True
            await runner.drain(drain)
        await runner.cleanup()


def run(*services: Service) -> None:  # type: ignore[type-arg]  # each has settings of its own
    """Run services until SIGINT or SIGTERM, with settings from the environment, in this process."""
    try:
        ready = [(service, load(service.settings)) for service in services]
    except BadSetting as error:
        sys.exit(f"{services[0].name}: {error}")
    first = ready[0][1]
    configure_logs(first.log_level)
    keep_memory()
    open_many_files()
    loop_factory = uvloop.new_event_loop if all(service.uvloop for service in services) else None
    name = services[0].name
    try:
        with (
            traces.during(name, first.otel_exporter_otlp_endpoint),
            asyncio.Runner(loop_factory=loop_factory) as runner,
        ):
            apps = [(service.create_app(settings), settings) for service, settings in ready]
            runner.run(until_stopped(_serve(apps)))
    except (BadSetting, OSError, MongoError) as error:  # A MongoError is a bad option of the URL.
        sys.exit(f"{name}: {error}")


def keep_memory() -> None:
    """Let glibc reuse the memory of forwarded blocks.

    Otherwise it returns each block to the system, which clears it again: a fifth of the cost of forwarding a body.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, 32 << 20)  # the largest that is accepted
        library.mallopt(TRIM_THRESHOLD, 64 << 20)


def collect_less_garbage() -> None:
    """Let the garbage collector skip the objects of the start, which stay, and run less often. Call when all serves."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def open_many_files() -> None:
    """Raise the limit of open files to the allowed maximum; the default is often 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports a limit that it does not accept.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(apps: list[tuple[web.Application, ServiceSettings]]) -> None:
    """Serve until cancelled. The management ports close last, so that probes see a service stopping."""
    async with AsyncExitStack() as management, AsyncExitStack() as services:
        for app, settings in apps:
            server = serving(app, settings.listen, drain=DRAIN_TIMEOUT)
            address = await services.enter_async_context(server)
            log.info("serving", address=address)
            if settings.management_listen:
                server = serving(management_of(app), settings.management_listen)
                await management.enter_async_context(server)
        collect_less_garbage()
        await asyncio.Event().wait()


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until SIGINT or SIGTERM; then cancel it once and wait until it has closed its resources."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        working.cancel()
    with suppress(asyncio.CancelledError):
        await working
