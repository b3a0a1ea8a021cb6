"""Sign-in and sign-out, and the throttle of failed logins."""
