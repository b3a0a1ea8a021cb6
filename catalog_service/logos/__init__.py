"""Logos of packages.

`service` decodes each logo in a confined process, which runs this package's `__main__` and thereby `decoder`.
"""
