"""Scans of stored installers for malware, and the installers that are withheld from downloads."""
