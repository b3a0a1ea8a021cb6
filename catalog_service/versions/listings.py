"""Caches the responses that list versions, by the catalog's revision and all parameters of the response.

A cached response costs one query for the revision, which concurrent requests share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model.versions import PackageVersion
from catalog_service.revisions.model import CatalogState
from common.auth.callers import Caller
from common.caching.bounded_cache import FifoCache
from common.caching.tenant_cache import RevisionCheck

MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes of a cache entry beside its body


class RevisionChecker(Protocol):
    async def check(self, tenant_id: str) -> RevisionCheck[CatalogState]:
        """Return the current state of the tenant's catalog."""


class VersionReader(Protocol):
    async def of_package(self, caller: Caller, package_id: str) -> Sequence[PackageVersion]:
        """The newest first. Raises PackageNotFound."""


@dataclass(frozen=True)
class Listing:
    """A response body, and the revision of the catalog; "" while the catalog is being changed."""

    body: bytes
    revision: str


class Listings:
    """Lists the versions of packages (section 4.4)."""

    def __init__(self, checker: RevisionChecker, versions: VersionReader, *, memory: int = MEMORY) -> None:
        self._checker = checker
        self._versions = versions
        self._bodies: FifoCache[tuple[str, str, str, str, int], bytes] = FifoCache(
            memory, size=lambda body: len(body) + OVERHEAD
        )

    async def of_package(
        self,
        caller: Caller,
        package_id: str,
        render: Callable[[Sequence[PackageVersion]], bytes],
        *,
        expires: int,
    ) -> Listing:
        """Render the versions with addresses for this caller that are valid until `expires`. Raises PackageNotFound."""
        revision = (await self._checker.check(caller.tenant_id)).state.stable_revision
        key = caller.tenant_id, revision, package_id, caller.base_url, expires
        body = self._bodies.get(key)
        if body is None:
            body = render(await self._versions.of_package(caller, package_id))
            if revision:
                self._bodies.put(key, body)
        return Listing(body, revision)
