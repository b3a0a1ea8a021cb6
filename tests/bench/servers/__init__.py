"""The processes that the benchmark measures."""
