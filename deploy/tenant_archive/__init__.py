"""Tenant archive."""
