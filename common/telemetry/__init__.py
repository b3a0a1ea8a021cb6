"""Logs and traces of requests, and the version of this program.

Logs are one JSON object per line, with the request's id and without secrets. Traces go through all services and stores,
by OpenTelemetry's semantic conventions. Tracing is off until `Traces.begin`: the library is not imported, and each call
returns a span that does nothing. Spans hold route templates and our own names only: no path, query, header, field, key
or value of a caller.
"""

import logging
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.metadata import version
from random import getrandbits
from typing import TYPE_CHECKING, Any, Self, TextIO

import structlog
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

if TYPE_CHECKING:
    from common.telemetry.otel import Spans

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
HIDDEN = "[redacted]"
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SECRET_NAMES = re.compile(r"password|secret|token|authorization|cookie|signature|credential|(^|_)key$", re.IGNORECASE)
# A text without any of them has no secret below.
_HINTS = (" ", "=", "://", '"', "'", "eyJ", "delete_client/", "/source/")
# Secrets inside any text: the group `before` stays, the rest of the match is replaced.
_SECRETS = re.compile(
    r"""
    (?P<before>
        \b(?:bearer|basic)\ +                                                # a header's value
      | ://(?=[^\s/?\#"']*@)                                                 # the user and password of an address
      | delete_client/[^/\s{]+/                                              # a client's token in a path
      | /source/(?=[^/\s{]+/winget)                                          # in a personal source address
      | (?:password|secret|token|signature|credential|api_?key)[\w-]*       # a field of a form or of an address
        (?:=|["']\s*:\s*["'])
    )
    (?:(?<=://)[^\s/?\#"']*(?=@)|[^\s&"',;<]+)
  | \beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*                                        # a JSON web token
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Structlog adds these to each line. Reading one through structlog costs four times as much.
_REQUEST_ID: ContextVar[str] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}request_id", default="")
TRACE_ID: ContextVar[str] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}trace_id")
TRACEPARENT = "traceparent"  # the W3C header, and the extension attribute of a CloudEvent


@cache
def software_version() -> str:
    """The release, and the commit of the image's build if it is known, as in `1.0.0+4f2a91c07d3b`."""
    commit = os.environ.get("PKGREPO_COMMIT")  # of the image; see deploy/Dockerfile
    return version("pkgrepo") + (f"+{commit}" if commit else "")


def request_id() -> str:
    """The id of the current request, or of the request that caused the current event; the same in every service."""
    return _REQUEST_ID.get()


def begin_request(known_id: str = "") -> None:
    """Set the current request's id: the given one or a new one of 32 hexadecimal digits."""
    # The id is no secret, and the system's random numbers cost more than a line of log.
    _REQUEST_ID.set(known_id or f"{getrandbits(128):032x}")


def is_hidden(character: str, *, formats: bool = True) -> bool:
    """Whether a text in a log or on a page should not have a character: nobody sees it, or it reorders others.

    Without `formats`, those formats count only that reorder: scripts and emoji need others.
    """
    kind = unicodedata.category(character)
    return kind in {"Cc", "Cs", "Zl", "Zp"} or (kind == "Cf" and (formats or character in _DIRECTION_MARKS))


@contextmanager
def of_request(known_id: str) -> Iterator[None]:
    """Set the current request's id within the block."""
    before = _REQUEST_ID.set(known_id)
    try:
        yield
    finally:
        _REQUEST_ID.reset(before)


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Set up the process's logs at `debug`, `info`, `warning` or `error`, and libraries' logs at `warning`.

    They go to standard error, or to `stream`.
    """
    stream = stream or sys.stderr
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*_SHARED, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    formatter = structlog.stdlib.ProcessorFormatter
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(foreign_pre_chain=_SHARED, processors=[formatter.remove_processors_meta, renderer]))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(True)  # Every line must be JSON.


def redact(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Replace secrets in a line: values with a secret name, and texts that look like a secret."""
    return {name: value if name.startswith("_") else _redacted(name, value) for name, value in line.items()}


def _redacted(name: str, value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case _ if _is_secret(name):
            return HIDDEN
        case str():
            return _SECRETS.sub(rf"\g<before>{HIDDEN}", value) if any(hint in value for hint in _HINTS) else value
        case Mapping():
            return {str(inner): _redacted(str(inner), item) for inner, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_redacted(name, item) for item in value]
        case _:
            return _redacted(name, repr(value))


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    redact,
]


class NoopSpan:
    """A span that does nothing, for requests that are not traced."""

    @property
    def traceparent(self) -> str:
        """The context for other services to continue the trace; "" for none."""
        return ""

    def set_status(self, status: int, cause: str = "") -> None:
        """Set the response status; `cause` is the class of the error."""

    def update(self, name: str, attributes: Mapping[str, str]) -> None:
        """Change the name and set attributes; empty values are left out."""

    def end(self, error: str = "") -> None:
        """End a span that was not entered; `error` is the class of the error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        pass


NOOP_SPAN = NoopSpan()


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

        self._spans = Spans(service, endpoint)

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
