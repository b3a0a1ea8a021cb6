"""Logs, metrics and traces for the operators of a service."""

from common.telemetry.logs import begin_request, configure_logs, log, of_request, request_id

__all__ = ["begin_request", "configure_logs", "log", "of_request", "request_id"]
