"""Clients, the packages that are hidden from them, and the releases of the client program. See README.md."""
