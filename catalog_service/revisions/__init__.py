"""Revisions of catalogs: they tell readers what changed."""
