"""The releases of the client program."""
