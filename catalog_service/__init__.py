"""Packages and their versions.

Owns the database `catalog`.
Answers the catalog to package clients, and what administrators do with packages and versions.
Listens for `upload.finished`; announces nothing.
"""
