"""Sign-in with an identity provider."""
