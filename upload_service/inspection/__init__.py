"""Inspection of uploaded installers, each in a confined process that runs this package's `__main__`."""
