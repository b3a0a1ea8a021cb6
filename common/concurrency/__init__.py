"""Limits, batching, single flight, background work, worker processes and confined processes."""
