"""Calls to malware scanners."""
