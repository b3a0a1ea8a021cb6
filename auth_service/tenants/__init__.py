"""Tenants and their settings."""
