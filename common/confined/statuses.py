"""Exit statuses that every confined module shares; a module may add its own."""

OUT_OF_MEMORY = 4
