"""Releases."""
