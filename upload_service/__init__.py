"""upload_service owns the installers: their files, the transfers that bring them, and each tenant's quota.

It receives a file in chunks or in one request, links it to the package version that claims it, and serves it at signed
addresses. It publishes `upload.finished` for every complete file, and removes files that no version claims.
"""
