"""Zero copy: the system moves the bytes of files and connections, or one thread receives them where they belong."""
