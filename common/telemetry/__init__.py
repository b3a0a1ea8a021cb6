"""What a service tells those who run it."""

from common.telemetry.logs import begin_request, configure_logs, log, of_request, request_id

__all__ = ["begin_request", "configure_logs", "log", "of_request", "request_id"]
