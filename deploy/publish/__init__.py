"""`pkgrepo publish`: installers from files to versions, over the public interface alone.

It knows the interface and none of the services, so it publishes to either deployment, near or far. What it sends
goes under an X-File-ID made from the file's bytes and the version they are for: the same command, run again after
whatever ended it, finds where the server stands and goes on from there.
"""
