"""Traces: what a request led to in every service and store, told as OpenTelemetry's semantic conventions have it.

They are off until `begin`; nothing of the library is imported before, and a hook costs one call. A span has templates
and names of our own in it: no path, query, header, field, key or value of anybody's.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from common.settings import BadSetting

if TYPE_CHECKING:
    from common.telemetry.otel import Spans

TRACEPARENT = "traceparent"  # the W3C's header, and the extension attribute of a CloudEvent


class NoopSpan:
    """Stands for a span where there is none: to be told as one is, to be entered and left, and to be ended."""

    @property
    def traceparent(self) -> str:
        """By which others go on with the trace; "" where there is none."""
        return ""

    def answered(self, status: int, cause: str = "") -> None:
        """Tell the status of an answer, and of an error the class of what caused it."""

    def told(self, name: str, attributes: Mapping[str, str]) -> None:
        """Give it another name, and attributes; those without a value are left out."""

    def end(self, error: str = "") -> None:
        """End one that is not entered, with the class of what went wrong."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


NOOP_SPAN = NoopSpan()


class Traces:
    """Where spans begin. What is asked of stores and services is one only as part of something that is traced."""

    def __init__(self) -> None:
        self._spans: Spans | None = None

    @contextmanager
    def during(self, service: str, endpoint: str | None) -> Iterator[None]:
        """Trace the applications that are made within the block, where there is an endpoint."""
        if endpoint:
            self.begin(service, endpoint)
        try:
            yield
        finally:
            self.end()

    @property
    def on(self) -> bool:
        return self._spans is not None

    def begin(self, service: str, endpoint: str) -> None:
        """Trace this process from now on, for the collector at `endpoint`. Raises BadSetting for the library's own."""
        from common.telemetry.otel import Spans  # noqa: PLC0415  that imports the library

        try:
            self._spans = Spans(service, endpoint)
        except ValueError as error:
            raise BadSetting(str(error)) from None

    def end(self) -> None:
        """Send what is left, as far as that is done within two seconds."""
        if self._spans is not None:
            self._spans.close()
        self._spans = None

    @property
    def traceparent(self) -> str:
        """By which others go on with what is being traced; "" where nothing is."""
        return self._spans.traceparent() if self._spans is not None else ""

    def answering(self, method: str, *, parent: str = "", link: str = "") -> NoopSpan:
        """A request, of the trace that `parent` names or of another, which has a link to the one that `link` names."""
        if self._spans is None:
            return NOOP_SPAN
        return self._spans.local_root(method, "server", {"http.request.method": method}, parent=parent, link=link)

    def asking(self, service: str, method: str, operation: str, headers: MutableMapping[str, str]) -> NoopSpan:
        """A question to a service; its headers get what the service needs to go on with the trace."""
        if self._spans is None:
            return NOOP_SPAN
        attributes = {"http.request.method": method, "service.peer.name": service}
        span = self._spans.child(f"{method} {operation}", "client", attributes)
        # A trace that is not kept has no more spans, and is not to be kept by others either.
        if traceparent := span.traceparent or self.traceparent:
            headers[TRACEPARENT] = traceparent
        return span

    def command(self, system: str, name: str, *, database: str = "", collection: str = "") -> NoopSpan:
        """A command to a database: which, and on what collection."""
        if self._spans is None:
            return NOOP_SPAN
        attributes = {
            "db.system.name": system,
            "db.operation.name": name,
            "db.namespace": database,
            "db.collection.name": collection,
        }
        return self._spans.child(f"{name} {collection}".rstrip(), "client", attributes)

    def publishing(self, system: str, event_type: str, parent: str) -> NoopSpan:
        """The publication of an event, of the trace that the fact is of."""
        return self._messaging("publish", "send", "producer", system, event_type, parent)

    def handling(self, system: str, event_type: str, parent: str) -> NoopSpan:
        """The handling of an event, of the trace that came with it."""
        return self._messaging("process", "process", "consumer", system, event_type, parent)

    def _messaging(self, name: str, operation: str, kind: str, system: str, event_type: str, parent: str) -> NoopSpan:
        if self._spans is None:
            return NOOP_SPAN
        attributes = {
            "messaging.system": system,
            "messaging.operation.name": name,
            "messaging.operation.type": operation,
            "cloudevents.event_type": event_type,
        }
        return self._spans.local_root(f"{name} {event_type}", kind, attributes, parent=parent)


traces = Traces()
