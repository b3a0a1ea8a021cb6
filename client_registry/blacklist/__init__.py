"""Blacklist."""
