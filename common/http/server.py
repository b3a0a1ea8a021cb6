"""How a service runs: its application, its address, its end."""

import asyncio
import ctypes
import gc
import multiprocessing
import platform
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, cast

import uvloop
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.core import Metric

from common.auth.callers import Callers
from common.auth.signing import Keys
from common.concurrency.workers import WorkerSlot, run_workers
from common.http.connection_limits import Runner, expect
from common.http.middleware import observe_requests, problems
from common.http.readiness import READINESS, add_probes, only_when_ready, probes_of
from common.http.service_auth import require_internal_token
from common.http.tracing import tracing_middlewares
from common.mongo import MongoError
from common.settings import BadSetting, ServiceSettings, Settings, load
from common.telemetry import configure_logs, log
from common.telemetry.metrics import METRICS, Metrics, gauges
from common.telemetry.scrape import metrics_handler
from common.telemetry.tracing import traces

KEEP_ALIVE = 75  # seconds; aiohttp's own hour would let slow senders stay
SHUTDOWN_TIMEOUT = 10  # seconds that running requests are given
# Seconds in which those who look at `/readyz` learn to send nobody here any more, and then as many again that idle
# connections are given; our own clients use none that was idle for half of it.
DRAIN_TIMEOUT = 2.0
BACKLOG = 4096  # connections that wait to be taken, as far as the system lets them
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h

Connect = Callable[[web.Application], AsyncIterator[None]]


@dataclass(frozen=True)
class Service(Generic[Settings]):
    """One service: its name, its settings, and how its application is made from them.

    `uvloop` is off where files are served: that loop has no `sendfile`.
    """

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
    """The application of a service behind the gateway: its routes, closed to all but the gateway and its fellows."""
    callers = Callers(keys, service=name)
    only_fellows = require_internal_token(callers, open_operations=open_operations)
    app = watched_app(name, connect, only_when_ready, only_fellows, access_log=access_log, callers=callers)
    for route in cast("Iterable[web.RouteDef]", routes):
        app.add_routes([web.route(route.method, route.path, route.handler, expect_handler=expect, **route.kwargs)])
    return app


def watched_app(
    name: str, connect: Connect, *middlewares: Middleware, access_log: bool, callers: Callers | None = None
) -> web.Application:
    """An application that says how it is: by probes, figures and, where that is wished, a line for each request.

    Where traces are on they go on with those of whom `callers` know.
    """
    metrics = Metrics(name)
    watch = observe_requests(metrics.requests, logged=access_log)
    app = web.Application(middlewares=[*tracing_middlewares(callers), watch, problems, *middlewares])
    app[METRICS] = metrics
    add_probes(app)

    async def ready() -> Sequence[Metric]:
        standing = await app[READINESS].standing()
        told = "1 where what the service needs is there, 0 where it is missing."
        return [gauges("pkgrepo_ready", told, standing.items(), label="dependency", service=name)]

    metrics.add_source("ready", ready, cached=False)
    app.cleanup_ctx.extend([connect, metrics.running])
    return app


def management_of(app: web.Application, *fellows: web.Application) -> web.Application:
    """What operators alone ask: the probes of a service, and the figures of all that run in this process."""
    management = probes_of(app)
    management.router.add_get(
        "/metrics", metrics_handler([each[METRICS] for each in (app, *fellows)]), expect_handler=expect
    )
    return management


@asynccontextmanager
async def serving(app: web.Application, listen: str, *, drain: float = 0, shared: bool = False) -> AsyncIterator[str]:
    """Serve at `host:port`, `[host]:port` or `unix:/path`, and say where: port 0 becomes the one that was free.

    At the end `/readyz` says so and all else goes on for `drain` seconds, and idle connections are given as many more
    to be left by who has them. A `shared` port is one of several processes, among which the system divides the
    connections.
    """
    runner = Runner(
        app,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=KEEP_ALIVE,
        shutdown_timeout=SHUTDOWN_TIMEOUT,
    )
    await runner.setup()
    try:
        if listen.startswith("unix:"):
            await web.UnixSite(runner, listen.removeprefix("unix:"), backlog=BACKLOG).start()
            yield listen
        else:
            host, _, port = listen.rpartition(":")
            await web.TCPSite(runner, host.strip("[]"), int(port), backlog=BACKLOG, reuse_port=shared).start()
            yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        if drain:
            app[READINESS].stop()
            await runner.drain(drain)
        await runner.cleanup()


def run(*services: Service) -> None:  # type: ignore[type-arg]  # each has settings of its own
    """Run services until SIGINT or SIGTERM, with settings from the environment: here, or in several processes."""
    try:
        ready = [(service, load(service.settings)) for service in services]
    except BadSetting as error:
        sys.exit(f"{services[0].name}: {error}")
    first = ready[0][1]
    if first.workers == 1:
        _run(ready, None)
    else:
        run_workers(first.workers, partial(_run, ready))


def _run(ready: list[tuple[Service, Any]], desk: WorkerSlot | None) -> None:  # type: ignore[type-arg]
    """Run services in this process, with these settings; at a `desk` it is one of several."""
    configure_logs(ready[0][1].log_level)
    keep_memory()
    open_many_files()
    loop_factory = uvloop.new_event_loop if all(service.uvloop for service, _ in ready) else None
    name, first = ready[0][0].name, ready[0][1]
    try:
        with (
            traces.during(name, first.otel_exporter_otlp_endpoint),
            asyncio.Runner(loop_factory=loop_factory) as runner,
        ):
            apps = [(service.create_app(settings), settings) for service, settings in ready]
            runner.run(until_stopped(_serve(apps, desk)))
    except (BadSetting, OSError, MongoError) as error:  # The latter is what the driver thinks of an address's options.
        sys.exit(f"{name}: {error}")


def keep_memory() -> None:
    """Let glibc keep the memory of blocks on their way through for the next ones.

    Otherwise it gives each block back to the system, which clears it anew: a fifth of what forwarding a body costs.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, 32 << 20)  # the largest that is accepted
        library.mallopt(TRIM_THRESHOLD, 64 << 20)


def open_many_files() -> None:
    """Let this process have as many connections as it is allowed; what it is given at first is often 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names a limit that it does not take.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(apps: list[tuple[web.Application, ServiceSettings]], desk: WorkerSlot | None) -> None:
    """Serve until cancelled. What stands apart ends last: it tells of a service that stops until it has stopped."""
    shared = desk is not None
    async with AsyncExitStack() as apart, AsyncExitStack() as services:
        for app, settings in apps:
            if desk is not None:
                app[METRICS].share(desk.folder, desk.number)
            address = await services.enter_async_context(
                serving(app, settings.listen, drain=DRAIN_TIMEOUT, shared=shared)
            )
            log.info("serving", address=address)
            if settings.management_listen:
                await apart.enter_async_context(serving(management_of(app), settings.management_listen, shared=shared))
        gc.freeze()  # What was made up to here stays, and need not be looked through again and again.
        await asyncio.Event().wait()


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do something until SIGINT or SIGTERM; then it is cancelled, once, and given the time to close what it opened."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if parent := multiprocessing.parent_process():
        loop.add_reader(parent.sentinel, stop.set)  # It is readable once the parent is no more.
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        working.cancel()
    with suppress(asyncio.CancelledError):
        await working
