"""Packages: stored, changed, searched and deleted."""
