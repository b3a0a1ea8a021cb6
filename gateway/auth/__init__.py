"""Authentication: the caller of a request."""
