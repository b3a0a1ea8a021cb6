"""Manifests of packages for winget clients."""
