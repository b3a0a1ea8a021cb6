"""Service client."""
