"""The throttle of failed logins."""
