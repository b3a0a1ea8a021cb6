"""Backups of the whole and archives of one tenant, both taken while everything runs.

What is kept is what the databases said at one moment, and each installer that they named then. Installers never change
under their names, so a backup takes over those of the one before. Keys are in neither: what is sealed or kept under
one is known again where the same key is.
"""
