"""Verification of the signatures of installers, in a confined process that runs this package's `__main__`."""
