"""Quota."""
