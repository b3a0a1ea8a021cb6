"""upload_service owns the installers: the files themselves, the transfers that bring them, and each tenant's quota.

It takes a file in chunks or in one call, links it to a package version when another service claims it, and serves it at
signed addresses. It announces `upload.finished` for every file that is complete. What nobody claims, it removes.
"""
