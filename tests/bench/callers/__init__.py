"""The callers of the benchmark, and the data of its tenants."""
