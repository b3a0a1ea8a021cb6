"""The catalog as a source of Windows' own winget, type Microsoft.Rest.

Answers what winget asks: searches, and the manifests of packages. What a version lacks to be installed is left out.
"""
