"""Leases: one request at a time works on a transfer."""
