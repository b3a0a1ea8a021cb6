"""A trace collector for tests. It stores the spans that services send over OTLP/HTTP."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from common.http.server import serving

LIMIT = 16 << 20  # bytes of one message


@dataclass(frozen=True)
class Span:
    """A span. `links` are the linked trace ids, `error` is the text of its error status."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: tuple[str, ...]
    error: str
    nanoseconds: int

    @classmethod
    def of(cls, resource: dict[str, Any], span: trace_pb2.Span) -> Self:
        return cls(
            service=resource["service.name"],
            name=span.name,
            kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            attributes=_attributes(span.attributes),
            links=tuple(link.trace_id.hex() for link in span.links),
            error=span.status.message if span.status.code == trace_pb2.Status.STATUS_CODE_ERROR else "",
            nanoseconds=span.end_time_unix_nano - span.start_time_unix_nano,
        )


@dataclass
class Collector:
    """The received data, as spans and as bytes."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    sent: bytes = b""
    processes: set[str] = field(default_factory=set)

    def traces(self) -> dict[str, dict[str, Span]]:
        """The spans by trace id and span id."""
        traces: dict[str, dict[str, Span]] = {}
        for span in self.spans:
            traces.setdefault(span.trace_id, {})[span.span_id] = span
        return traces

    def ancestors(self, span: Span) -> Iterator[Span]:
        """A span and its ancestors, up to the root or to a span that a killed service did not send."""
        trace = self.traces()[span.trace_id]
        current: Span | None = span
        while current:
            yield current
            current = trace.get(current.parent_id)

    async def receive_spans(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.sent += body
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(resource_spans.resource.attributes)
            self.processes.add(resource["service.instance.id"])
            self.spans += [Span.of(resource, span) for scope in resource_spans.scope_spans for span in scope.spans]
        return web.Response()


@asynccontextmanager
async def run_collector() -> AsyncIterator[Collector]:
    """Run a collector. Its `url` is a value for `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    collector = Collector()
    app = web.Application(client_max_size=LIMIT)
    app.router.add_post("/v1/traces", collector.receive_spans)
    async with serving(app, "127.0.0.1:0") as collector.url:
        yield collector


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
