"""The storage quota of each tenant, and its reconciliation with the records."""
