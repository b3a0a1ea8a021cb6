"""Outgoing."""
