"""The storages of complete installers, and the migration between them."""
