"""Searches of winget clients in a cached index."""
