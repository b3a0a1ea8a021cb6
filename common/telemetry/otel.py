"""Spans of OpenTelemetry, sent over HTTP by a background thread. Imported only if tracing is on."""

import os
from collections.abc import Mapping
from threading import Thread
from typing import Self

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from common.settings import BadSetting
from common.telemetry import NOOP_SPAN, TRACE_ID, TRACEPARENT, NoopSpan, software_version

CLOSE_TIMEOUT = 2.0  # seconds
CLIENT_ERROR, SERVER_ERROR = 400, 500  # the lowest status that is an error of a client span, of a server span
_EMPTY = context.Context()
_W3C = TraceContextTextMapPropagator()


class Spans:
    """Creates the spans of one process. The library's `OTEL_*` variables apply, the service name included."""

    def __init__(self, service: str, endpoint: str) -> None:
        """Raises BadSetting for a bad setting of the library."""
        ours = {SERVICE_NAME: service, SERVICE_VERSION: software_version()}
        url = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) or f"{endpoint.rstrip('/')}/v1/traces"
        try:
            resource = Resource.create({**ours, **OTELResourceDetector().detect().attributes})
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
        except ValueError as error:
            raise BadSetting(str(error)) from None
        self._tracer = self._provider.get_tracer("pkgrepo")

    def close(self) -> None:
        # The library would wait for half a minute; a collector may never answer.
        closing = Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT)

    def traceparent(self) -> str:
        return _traceparent(context.get_current())

    def local_root(
        self, name: str, kind: str, attributes: Mapping[str, str], *, parent: str = "", link: str = ""
    ) -> NoopSpan:
        """The first span of this process: in the trace of `parent`, or in a new one."""
        linked = trace.get_current_span(_parse(link)).get_span_context()
        links = [trace.Link(linked)] if linked.is_valid else []
        return self._start(name, kind, attributes, _parse(parent), links)

    def child(self, name: str, kind: str, attributes: Mapping[str, str]) -> NoopSpan:
        """A span within the current one; `NOOP_SPAN` if there is none or it is not sampled."""
        current = context.get_current()
        if not trace.get_current_span(current).is_recording():
            return NOOP_SPAN
        return self._start(name, kind, attributes, current, [])

    def _start(
        self, name: str, kind: str, attributes: Mapping[str, str], parent: context.Context, links: list[trace.Link]
    ) -> "Span":
        values = {name: value for name, value in attributes.items() if value}
        span = self._tracer.start_span(name, parent, trace.SpanKind[kind.upper()], values, links)
        return Span(span, parent, CLIENT_ERROR if kind == "client" else SERVER_ERROR)


class Span(NoopSpan):
    """A span; spans that start while it is entered are its children."""

    def __init__(self, span: trace.Span, parent: context.Context, error_from: int) -> None:
        self._span = span
        self._context = trace.set_span_in_context(span, parent)
        self._error_from = error_from
        self._error = ""

    @property
    def traceparent(self) -> str:
        return _traceparent(self._context)

    def set_status(self, status: int, cause: str = "") -> None:
        self._span.set_attribute("http.response.status_code", status)
        if status >= self._error_from:
            self._error = cause or str(status)

    def update(self, name: str, attributes: Mapping[str, str]) -> None:
        self._span.update_name(name)
        for attribute, value in attributes.items():
            if value:
                self._span.set_attribute(attribute, value)

    def end(self, error: str = "") -> None:
        if error:  # the class only: the text may hold values of a caller
            self._span.set_attribute("error.type", error)
            self._span.set_status(trace.StatusCode.ERROR, error)
        self._span.end()

    def __enter__(self) -> Self:
        ids = self._span.get_span_context()
        self._before = context.attach(self._context)
        self._log_token = TRACE_ID.set(trace.format_trace_id(ids.trace_id)) if ids.trace_flags.sampled else None
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._log_token is not None:
            TRACE_ID.reset(self._log_token)
        context.detach(self._before)
        self.end(self._error or (error.__name__ if error else ""))


def _parse(traceparent: str) -> context.Context:
    """The context of a `traceparent`; an empty one if it is invalid."""
    return _W3C.extract({TRACEPARENT: traceparent}, _EMPTY) if traceparent else _EMPTY


def _traceparent(current: context.Context) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, current)
    return carrier.get(TRACEPARENT, "")
