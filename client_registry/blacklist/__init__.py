"""The packages that are hidden from clients."""
