"""Callers and their internal tokens, administrators' sessions, signing keys and signed download addresses."""
