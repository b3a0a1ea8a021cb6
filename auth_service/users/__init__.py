"""Users with passwords, and API tokens. Failed sign-ins are throttled."""
