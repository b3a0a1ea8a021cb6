"""Logs: one JSON object a line, with the request's id."""

import logging
import sys
from typing import TextIO

import structlog

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


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
