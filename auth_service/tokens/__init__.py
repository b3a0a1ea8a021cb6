"""API tokens, which belong to a tenant and not to a user."""
