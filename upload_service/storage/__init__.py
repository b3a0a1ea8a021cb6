"""The files of transfers, the storages of complete installers, and the migration between them."""
