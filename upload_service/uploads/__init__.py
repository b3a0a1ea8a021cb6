"""Uploads: chunks, one-call forms, claims by versions, removal, and the outbox of events."""
