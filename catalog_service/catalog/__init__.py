"""The catalog response: read, rendered, compressed and cached."""
