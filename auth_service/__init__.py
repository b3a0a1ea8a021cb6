"""Tenants, their users and sessions, and the audit log. See README.md."""
