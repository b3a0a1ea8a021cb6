"""Logs: one JSON object a line, with the request's id, and without secrets."""

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
_SIGNS = (
    " ",
    "=",
    "://",
    '"',
    "'",
    "eyJ",
    "delete_client/",
)  # without any of them a text has no secret of these shapes
# What is a secret wherever it stands: a group `before` and what follows it, up to its end.
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


# Structlog finds it by that name; its own way to read one costs four times as much, and is gone for each answer.
_REQUEST_ID: ContextVar[str] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}request_id", default="")


def request_id() -> str:
    """The id of the request being answered, or of the one that an event tells of; the same in every service's log."""
    return _REQUEST_ID.get()


def begin_request(given: str = "") -> None:
    """Let what follows be of the request of this id, or of another: 32 hexadecimal digits.

    They are no secret, and the system's random numbers cost more than a line.
    """
    _REQUEST_ID.set(given or f"{getrandbits(128):032x}")


@contextmanager
def of_request(given: str) -> Iterator[None]:
    """Let the block be of the request of this id."""
    before = _REQUEST_ID.set(given)
    try:
        yield
    finally:
        _REQUEST_ID.reset(before)


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Set up the process's logs at `debug`, `info`, `warning` or `error`; libraries' logs from `warning` on.

    They go to the standard error output, or to `stream`.
    """
    stream = stream or sys.stderr
    structlog.configure(
        processors=[*_SHARED, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(True)  # A log of JSON has no line that is none.


def redact(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Take secrets out of a line: by the name they have there, and by what they look like inside any text."""
    return {name: value if name.startswith("_") else _redacted(name, value) for name, value in line.items()}


def _redacted(name: str, value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case _ if _is_secret(name):
            return HIDDEN
        case str():
            return _SECRETS.sub(_hide, value) if any(sign in value for sign in _SIGNS) else value
        case Mapping():
            return {str(inner): _redacted(str(inner), found) for inner, found in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_redacted(name, found) for found in value]
        case _:
            return _redacted(name, repr(value))


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


def _hide(found: re.Match[str]) -> str:
    return f"{found['before'] or ''}{HIDDEN}"


_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    redact,
]
