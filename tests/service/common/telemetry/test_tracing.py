"""The content of a trace, the sampling decision, and the end of spans."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from common.auth.internal_tokens import INTERNAL_TOKEN, Callers, sign
from common.errors import Unavailable
from common.http.middleware import problems, require_internal_token, tracing_middlewares
from common.http.server import serving
from common.mongo import MongoError, open_database
from common.redis import ScriptRunner, open_redis
from common.service_client.client import open_service
from common.telemetry import TRACEPARENT, traces
from common.tenants import Tenant
from tests.support.factories import KEY, KEYS, make_caller
from tests.support.servers.otlp_server import Collector, Span, run_collector
from tests.support.wait import TIMEOUT, until

SERVICE = "catalog_service"
THEIRS = "a" * 32
KEPT, NOT_KEPT = (f"00-{THEIRS}-{'b' * 16}-{flags}" for flags in ("01", "00"))
CANARY = "canary-that-no-trace-has"
KNOWN = Callers(KEYS, service=SERVICE)


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """Receives the spans of this process soon after they end."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds
    monkeypatch.setattr("common.telemetry.otel.CLOSE_TIMEOUT", TIMEOUT)
    async with run_collector() as collector:
        traces.begin("tests", collector.url)
        try:
            yield collector
        finally:
            await asyncio.to_thread(traces.end)


async def finished_spans(collector: Collector) -> list[Span]:
    """All spans; ends tracing."""
    await asyncio.to_thread(traces.end)
    return collector.spans


@asynccontextmanager
async def serving_handler(handler: Handler, callers: Callers | None = None) -> AsyncIterator[str]:
    """The URL of a service with this handler; without `callers` it requires no token, like the gateway."""
    authentication = [require_internal_token(callers, open_operations=frozenset({"ask"}))] if callers else []
    app = web.Application(middlewares=[*tracing_middlewares(callers), problems, *authentication])
    app.router.add_get("/{tenant_id}/ask", handler)
    async with serving(app, "127.0.0.1:0") as address:
        yield f"{address}/acme/ask"


async def ask(url: str, *headers: tuple[str, str]) -> None:
    async with ClientSession() as session, session.get(url, headers=CIMultiDict(headers)) as response:
        await response.read()


def internal_token(operation: str = "ask") -> tuple[str, str]:
    """The header of an internal request for an operation."""
    return INTERNAL_TOKEN, sign(KEY, make_caller(Tenant("acme")), service=SERVICE, operation=operation)


async def nothing(_: web.Request) -> web.StreamResponse:
    return web.Response()


async def test_the_trace_of_an_internal_request_is_continued(collector: Collector) -> None:
    async with serving_handler(nothing, KNOWN) as url:
        await ask(url, internal_token(), (TRACEPARENT, KEPT))
    (span,) = await finished_spans(collector)
    assert (span.trace_id, span.parent_id, span.links) == (THEIRS, "b" * 16, ())
    assert (span.name, span.kind) == ("GET /{tenant_id}/ask", "server")


@pytest.mark.parametrize(
    ("callers", "headers_of"),
    [
        (None, internal_token),
        (KNOWN, lambda: ("Via", "nobody")),
        (KNOWN, lambda: internal_token("another")),
        (KNOWN, lambda: (INTERNAL_TOKEN, f"{internal_token()[1]}x")),
    ],
    ids=["at-the-gateway", "without-a-token", "with-another-s-token", "with-an-altered-token"],
)
async def test_an_external_trace_becomes_a_link_of_a_new_one(
    collector: Collector, callers: Callers | None, headers_of: Callable[[], tuple[str, str]]
) -> None:
    async with serving_handler(nothing, callers) as url:
        await ask(url, (TRACEPARENT, KEPT), ("tracestate", f"x={CANARY}"), headers_of())
    (span,) = await finished_spans(collector)
    assert (span.parent_id, span.links) == ("", (THEIRS,))
    assert span.trace_id != THEIRS
    assert CANARY.encode() not in collector.sent


async def test_only_internal_requests_decide_the_sampling(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished_spans(collector)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    traces.begin("tests", collector.url)
    async with serving_handler(nothing, KNOWN) as url:
        await ask(url, (TRACEPARENT, KEPT))
        await ask(url, internal_token(), (TRACEPARENT, KEPT))
        await ask(url, internal_token(), (TRACEPARENT, NOT_KEPT))
    (span,) = await finished_spans(collector)
    assert span.parent_id


async def test_an_unsampled_trace_stays_unsampled_in_the_next_service(collector: Collector) -> None:
    headers: dict[str, str] = {}
    with traces.request_span("GET", parent=NOT_KEPT), traces.call_span("auth_service", "POST", "find_tenant", headers):
        pass
    _, trace, _, flags = headers[TRACEPARENT].split("-")
    assert (trace, flags) == (THEIRS, "00")
    assert await finished_spans(collector) == []


@pytest.mark.parametrize(
    "values", [("",), ("nonsense",), (KEPT[:-3],), (f"00-{'0' * 32}-{'b' * 16}-01",), (KEPT, KEPT)], ids=repr
)
async def test_an_invalid_trace_header_is_ignored(collector: Collector, values: tuple[str, ...]) -> None:
    async with serving_handler(nothing, KNOWN) as url:
        await ask(url, internal_token(), *((TRACEPARENT, text) for text in values))
    (span,) = await finished_spans(collector)
    assert (span.parent_id, span.links) == ("", ())


async def test_the_span_of_a_response_ends_with_its_last_byte(collector: Collector) -> None:
    rest = asyncio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if "wait" in request.query:
            await response.write(b"begun")
            await rest.wait()
        await response.write_eof()
        return response

    async def another_span_is_reported() -> bool:
        return bool(collector.spans)

    async with serving_handler(slowly) as url, ClientSession() as session, session.get(f"{url}?wait=1") as response:
        assert await response.content.readexactly(5) == b"begun"
        await ask(url)
        await until(another_span_is_reported)
        assert len(collector.spans) == 1
        rest.set()
        await response.read()
    assert len(await finished_spans(collector)) == 2


async def test_a_span_name_contains_no_external_input(collector: Collector) -> None:
    async with (
        serving_handler(nothing) as url,
        ClientSession() as session,
        session.request("PROPFIND", f"{url}/{CANARY}") as response,
    ):
        assert response.status == 404
    (span,) = await finished_spans(collector)
    assert (span.name, span.attributes["http.request.method"]) == ("HTTP", "_OTHER")
    assert not {name for name in ("PROPFIND", CANARY) if name.encode() in collector.sent}


async def test_a_span_has_the_class_of_an_error_and_not_its_message(collector: Collector) -> None:
    async def fail(_: web.Request) -> web.StreamResponse:
        raise ValueError(CANARY)

    async with serving_handler(fail) as url:
        await ask(f"{url}?token={CANARY}", ("Authorization", CANARY), ("User-Agent", CANARY))
    (span,) = await finished_spans(collector)
    assert (span.error, span.attributes["error.type"]) == ("ValueError", "ValueError")
    assert span.attributes["http.response.status_code"] == 500
    assert CANARY.encode() not in collector.sent


async def test_an_unreachable_service_is_an_error_of_the_call(collector: Collector, tmp_path: Path) -> None:
    async with open_service(f"unix:{tmp_path}/none.sock", service="upload_service", keys=KEYS) as service:
        with traces.request_span("GET"), pytest.raises(Unavailable):
            await service.json(make_caller(), "storage_usage")
    call, _ = await finished_spans(collector)
    assert (call.name, call.error) == ("POST storage_usage", "Unavailable")


async def test_spans_of_mongodb_have_the_command_and_the_collection(collector: Collector, mongo_url: str) -> None:
    async with open_database(mongo_url, f"test_{uuid4().hex}") as database:
        await database.things.find_one()  # The connection is authenticated before the trace begins.
        with traces.request_span("GET"):
            await database.things.insert_many([{"canary": CANARY} for _ in range(3)])
            assert len(await database.things.find({"canary": CANARY}, batch_size=2).to_list(None)) == 3
            with pytest.raises(MongoError):
                await database.command("noSuchCommand", CANARY)
            await database.client.drop_database(database.name)
    *spans, _ = await finished_spans(collector)
    assert [(span.name, span.error) for span in spans] == [
        ("insert things", ""),
        ("find things", ""),
        ("getMore things", ""),
        ("noSuchCommand", "CommandNotFound"),
        ("dropDatabase", ""),
    ]
    assert CANARY.encode() not in collector.sent


async def test_spans_of_redis_have_the_command_only(collector: Collector, redis_url: str) -> None:
    async with open_redis(redis_url) as redis:
        with traces.request_span("GET"):
            await redis.set(CANARY, CANARY, ex=1)
            assert await ScriptRunner(redis, "return ARGV[1]").run(1, CANARY, CANARY) == CANARY
    *spans, _ = await finished_spans(collector)
    assert [(span.name, span.kind) for span in spans] == [("SET", "client"), ("EVALSHA", "client")]
    assert CANARY.encode() not in collector.sent


async def test_store_commands_without_a_request_are_not_traced(
    collector: Collector, mongo_url: str, redis_url: str
) -> None:
    async with open_database(mongo_url, "test") as database, open_redis(redis_url) as redis:
        await database.command("ping")
        await redis.ping()
    assert await finished_spans(collector) == []
