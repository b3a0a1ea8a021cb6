"""The versions of packages as they are answered, kept while nothing in their tenant's catalog changes.

An answer is kept by the revision at which it was read, see `revisions`, and by all else that stands in it. So whoever
asks is answered what is there now, for one look at the database, which all who ask at the same time share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog_service.model.versions import PackageVersion
from catalog_service.revisions.model import Look
from common.auth.callers import Caller
from common.caching.bounded_cache import FifoCache

MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes that an answer takes beside its own


class Looks(Protocol):
    async def look(self, tenant_id: str) -> Look:
        """Where the tenant's catalog stands now."""


class VersionReader(Protocol):
    async def of_package(self, caller: Caller, package_id: str) -> Sequence[PackageVersion]:
        """The newest first. Raises PackageNotFound."""


@dataclass(frozen=True)
class Listing:
    """An answer, and the revision of the catalog at which it is so: "" where that is being changed."""

    body: bytes
    revision: str


class Listings:
    """Lists the versions of packages (section 4.4)."""

    def __init__(self, looks: Looks, versions: VersionReader, *, memory: int = MEMORY) -> None:
        self._looks = looks
        self._versions = versions
        self._kept: FifoCache[tuple[str, str, str, str, int], bytes] = FifoCache(
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
        """What `render` makes of them, with addresses for this caller that are good until `expires`.

        Raises PackageNotFound.
        """
        revision = (await self._looks.look(caller.tenant_id)).revision
        key = caller.tenant_id, revision, package_id, caller.base_url, expires
        body = self._kept.get(key)
        if body is None:
            body = render(await self._versions.of_package(caller, package_id))
            if revision:
                self._kept.put(key, body)
        return Listing(body, revision)
