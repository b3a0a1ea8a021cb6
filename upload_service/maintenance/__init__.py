"""Background maintenance: orphaned files, scrub, metrics."""
