"""The `pkgrepo` command: one module for each group of commands."""
