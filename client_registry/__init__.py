"""Clients, what is hidden from them, and the releases of the client program.

Owns the database `clients`: clients with the digests of their tokens, blacklist entries and groups, releases.
Tells the gateway which client a token names and the catalog what that client does not see; asks upload_service for
the files of releases.
Announces nothing.
"""
