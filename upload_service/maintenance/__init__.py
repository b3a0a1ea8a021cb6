"""Background maintenance: stale uploads, orphaned files, scrub, metrics."""
