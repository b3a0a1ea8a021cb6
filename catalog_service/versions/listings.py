"""Caches the responses that list versions, by the catalog's revision and all parameters of the response.

A cached response costs one query for the revision, which concurrent requests share.
"""

from collections.abc import Callable, Sequence

from catalog_service.catalog.cache import CatalogCache
from catalog_service.model.versions import PackageVersion
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import Caller
from common.caching.bounded_cache import FifoCache

MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes of a cache entry beside its body


class Listings:
    """Lists the versions of packages."""

    def __init__(self, catalogs: CatalogCache, versions: Versions, *, memory: int = MEMORY) -> None:
        self._catalogs = catalogs
        self._versions = versions
        self._bodies: FifoCache[tuple[str, str, str, str, int], bytes] = FifoCache(
            memory, size=lambda body: len(body) + OVERHEAD
        )

    async def of_package(
        self, caller: Caller, package_id: str, render: Callable[[Sequence[PackageVersion]], bytes], *, expires: int
    ) -> tuple[bytes, str]:
        """Render the versions with addresses for this caller that are valid until `expires`.

        Return the body and the revision of the catalog; "" while the catalog is being changed. Raises PackageNotFound.
        """
        revision = (await self._catalogs.check(caller.tenant_id)).state.stable_revision
        key = caller.tenant_id, revision, package_id, caller.base_url, expires
        body = self._bodies.get(key)
        if body is None:
            body = render(await self._versions.of_package(caller, package_id))
            if revision:
                self._bodies.put(key, body)
        return body, revision
