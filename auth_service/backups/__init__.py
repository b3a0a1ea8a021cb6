"""The backups of the installation, as far as auth_service knows of them."""
