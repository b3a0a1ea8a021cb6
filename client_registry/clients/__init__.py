"""The clients of a tenant: registration, tokens and host names."""
