"""Backups of a whole installation: made while it runs, restored into empty stores. They contain no keys."""
