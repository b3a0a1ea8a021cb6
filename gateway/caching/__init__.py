"""Caches of responses of other services."""
