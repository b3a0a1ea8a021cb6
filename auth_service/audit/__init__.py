"""The audit log: a signed chain of entries for each tenant."""
