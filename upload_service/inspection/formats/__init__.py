"""The formats of installers."""
