"""Limits, batching, single flight, background work and confined processes."""
