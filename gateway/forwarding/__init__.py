"""Forwarding."""
