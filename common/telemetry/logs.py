"""Logs: one JSON object per line, with the request's id and without secrets."""

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from random import getrandbits
from typing import Any, TextIO

import structlog
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

HIDDEN = "[redacted]"
_SECRET_NAMES = re.compile(r"password|secret|token|authorization|cookie|signature|credential|(^|_)key$", re.IGNORECASE)
_HINTS = (" ", "=", "://", '"', "'", "eyJ", "delete_client/")  # A text without any of them has no secret below.
# Secrets inside any text: the group `before` stays, the rest of the match is replaced.
_SECRETS = re.compile(
    r"""
    (?P<before>
        \b(?:bearer|basic)\ +                                                # a header's value
      | ://(?=[^\s/?\#"']*@)                                                 # the user and password of an address
      | delete_client/[^/\s{]+/                                              # a client's token in a path
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


def request_id() -> str:
    """The id of the current request, or of the request that caused the current event; the same in every service."""
    return _REQUEST_ID.get()


def begin_request(known_id: str = "") -> None:
    """Set the current request's id: the given one or a new one of 32 hexadecimal digits."""
    # The id is no secret, and the system's random numbers cost more than a line of log.
    _REQUEST_ID.set(known_id or f"{getrandbits(128):032x}")


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
