"""Retention: old versions are hidden for some days and then deleted, as the rules of a tenant say."""
