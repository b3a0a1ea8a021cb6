"""Tenants, their settings, and how much of their limits they use."""
