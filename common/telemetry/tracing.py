"""Traces of requests through all services and stores, by OpenTelemetry's semantic conventions.

Tracing is off until `begin`: the library is not imported, and each call returns a span that does nothing. Spans hold
route templates and our own names only: no path, query, header, field, key or value of a caller.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from common.settings import BadSetting
from common.telemetry.spans import NOOP_SPAN, TRACEPARENT, NoopSpan

if TYPE_CHECKING:
    from common.telemetry.otel import Spans


class Traces:
    """Starts spans. Calls to stores and services get a span only within a traced request."""

    def __init__(self) -> None:
        self._spans: Spans | None = None

    @contextmanager
    def during(self, service: str, endpoint: str | None) -> Iterator[None]:
        """Trace applications that are created within the block, if there is an endpoint."""
        if endpoint:
            self.begin(service, endpoint)
        try:
            yield
        finally:
            self.end()

    @property
    def enabled(self) -> bool:
        return self._spans is not None

    def begin(self, service: str, endpoint: str) -> None:
        """Trace this process and send spans to `endpoint`. Raises BadSetting for a bad setting of the library."""
        from common.telemetry.otel import Spans  # noqa: PLC0415  that imports the library

        try:
            self._spans = Spans(service, endpoint)
        except ValueError as error:
            raise BadSetting(str(error)) from None

    def end(self) -> None:
        """Send the remaining spans, for at most two seconds."""
        if self._spans is not None:
            self._spans.close()
        self._spans = None

    @property
    def traceparent(self) -> str:
        """The current context for other services to continue the trace; "" for none."""
        return self._spans.traceparent() if self._spans is not None else ""

    def request_span(self, method: str, *, parent: str = "", link: str = "") -> NoopSpan:
        """A received request: it continues the trace of `parent`, or starts one with a link to `link`."""
        return self._root(method, "server", {"http.request.method": method}, parent=parent, link=link)

    def call_span(self, service: str, method: str, operation: str, headers: MutableMapping[str, str]) -> NoopSpan:
        """A call to a service; adds the trace's context to the headers."""
        span = self._child(f"{method} {operation}", {"http.request.method": method, "service.peer.name": service})
        # A trace that is not sampled has no spans, and its context tells other services not to sample it.
        if traceparent := span.traceparent or self.traceparent:
            headers[TRACEPARENT] = traceparent
        return span

    def command_span(self, system: str, name: str, *, database: str = "", collection: str = "") -> NoopSpan:
        """A command to a database."""
        attributes = {
            "db.system.name": system,
            "db.operation.name": name,
            "db.namespace": database,
            "db.collection.name": collection,
        }
        return self._child(f"{name} {collection}".rstrip(), attributes)

    def publish_span(self, system: str, event_type: str, parent: str) -> NoopSpan:
        """The publication of an event, in the trace of the request that caused it."""
        return self._messaging("publish", "send", "producer", system, event_type, parent)

    def process_span(self, system: str, event_type: str, parent: str) -> NoopSpan:
        """The processing of an event, in the trace that came with it."""
        return self._messaging("process", "process", "consumer", system, event_type, parent)

    def _messaging(self, name: str, operation: str, kind: str, system: str, event_type: str, parent: str) -> NoopSpan:
        attributes = {
            "messaging.system": system,
            "messaging.operation.name": name,
            "messaging.operation.type": operation,
            "cloudevents.event_type": event_type,
        }
        return self._root(f"{name} {event_type}", kind, attributes, parent=parent)

    def _root(self, name: str, kind: str, attributes: Mapping[str, str], *, parent: str, link: str = "") -> NoopSpan:
        return self._spans.local_root(name, kind, attributes, parent=parent, link=link) if self._spans else NOOP_SPAN

    def _child(self, name: str, attributes: Mapping[str, str]) -> NoopSpan:
        return self._spans.child(name, "client", attributes) if self._spans else NOOP_SPAN


traces = Traces()
