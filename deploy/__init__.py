"""How the product is started: the `pkgrepo` command, the bundled servers, and the files of the container image."""
