"""Tenants, their users and sessions, and the audit log.

Owns the database `auth` and, in Redis, the life of sessions and the count of failed logins.
Answers `login`, `logout`, users, settings, server information and the audit log; tells the gateway of a tenant.
Announces nothing.
"""
