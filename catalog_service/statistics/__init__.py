"""Downloads of versions, and the size of the catalog."""
