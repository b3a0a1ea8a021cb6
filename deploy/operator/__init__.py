"""Operators' access to the stores: addresses, keys, storage, schemas, audit log."""
