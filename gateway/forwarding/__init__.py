"""Executing an operation: forwarding it to its service, and recording it in the audit log."""
