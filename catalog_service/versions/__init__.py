"""Versions of packages, with their installer files."""
