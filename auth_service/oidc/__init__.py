"""Sign-in with a company's identity provider, by OpenID Connect."""
