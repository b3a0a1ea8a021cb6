"""Calls to upload_service, which stores the installer files."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from catalog_service.model.installers import DamagedFile, Downloads, FileChecks, InstallerFile
from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from common.service_client.client import ServiceClient, json_of

RELEASE_BATCH = 100  # versions of one request
CONCURRENT_RELEASES = 4  # requests
REMOVAL_TIMEOUT = 25.0  # seconds
STATISTICS_TIMEOUT = 12.0  # seconds
PAGE_TIMEOUT = 1.0  # seconds, less than a page of versions may take
INSPECTION_TIMEOUT = 30.0  # seconds
NAMES_BATCH = 1000  # files of one request
CHECKS_BATCH = 100  # files of one request
_FILE = TypeAdapter(InstallerFile)
_DAMAGED_FILES = TypeAdapter(list[DamagedFile])
_CHECKS = TypeAdapter(dict[str, FileChecks])
_DOWNLOADS = TypeAdapter(Downloads)
Item = TypeVar("Item")


class UploadService:
    """Claims, releases, lists and inspects installer files."""

    def __init__(self, service: ServiceClient) -> None:
        self._service = service

    async def claim(
        self, caller: Caller, server_filename: str, version_uid: str, *, withheld: bool = False
    ) -> InstallerFile:
        """Link a file to a version, `withheld` from downloads; claiming it again for the same version changes nothing.

        Raises UpstreamProblem (404 `installer_not_found`, unknown or another version's; 407 `storage_exceeded`), or
        Unavailable.
        """
        body = {"server_filename": server_filename, "version_uid": version_uid, "withheld": withheld}
        return _FILE.validate_python(await self._service.json(caller, "claim_installer", body))

    async def check_uploader(self, caller: Caller, server_filename: str) -> None:
        """Raise UpstreamProblem if the caller may not use a file (403) or there is none (404), or Unavailable."""
        async with self._service.open(caller, "GET", ["inspect_upload", server_filename]) as response:
            await json_of(response)

    async def inspect(self, caller: Caller, server_filename: str) -> Mapping[str, Any]:
        """Inspect a file, unless that was done before. Return its properties by the names of form fields.

        Raises UpstreamProblem (404 `installer_not_found`), or Unavailable, also if the inspection takes too long.
        """
        body, timeout = {"server_filename": server_filename}, INSPECTION_TIMEOUT
        properties: Mapping[str, Any] = await self._service.json(caller, "inspect_installer", body, timeout=timeout)
        return properties

    async def release(self, caller: Caller, version_uids: Sequence[str]) -> None:
        """Delete the files of these versions, as far as they exist. Raises Unavailable."""
        for batches in _batches([*_batches(version_uids, RELEASE_BATCH)], CONCURRENT_RELEASES):
            bodies = [{"version_uids": uids} for uids in batches]
            operation, timeout = "release_installers", REMOVAL_TIMEOUT
            await asyncio.gather(*(self._service.json(caller, operation, body, timeout=timeout) for body in bodies))

    async def unclaimed(self, caller: Caller, server_filenames: Sequence[str]) -> Set[str]:
        """Return which of these files exist and are unused. Raises Unavailable."""
        unclaimed: set[str] = set()
        for names in _batches(server_filenames, NAMES_BATCH):
            answer = await self._service.json(caller, "unclaimed_installers", {"server_filenames": names})
            unclaimed.update(answer["server_filenames"])
        return unclaimed

    async def damaged(self, caller: Caller) -> Sequence[DamagedFile]:
        """Return the tenant's damaged files, the oldest finding first. Raises Unavailable."""
        answer = await self._service.json(caller, "damaged_installers")
        return _DAMAGED_FILES.validate_python(answer["installers"])

    async def checks(self, caller: Caller, version_uids: Sequence[str]) -> Mapping[str, FileChecks]:
        """Return the scans and signatures of the files of these versions, as far as they exist. Raises Unavailable."""
        checks: dict[str, FileChecks] = {}
        for uids in _batches(version_uids, CHECKS_BATCH):
            answer = await self._service.json(caller, "installer_checks", {"version_uids": uids})
            try:
                checks |= _CHECKS.validate_python(answer["installers"])
            except (ValidationError, LookupError, TypeError) as error:
                raise Unavailable("The checks of the files cannot be read; try again soon.") from error
        return checks

    async def withhold(self, caller: Caller, version_uid: str, fence: int, *, withheld: bool) -> None:
        """Withhold the file of a version from downloads, or not any more. Raises Unavailable.

        upload_service ignores a request with a `fence` that is not newer than the last one.
        """
        versions = [{"uid": version_uid, "withheld": withheld, "fence": fence}]
        await self._service.json(caller, "withhold_installers", {"versions": versions})

    async def infected(self, caller: Caller) -> Sequence[tuple[str, str]]:
        """Return the versions of a tenant, or of `ALL_TENANTS`, whose files the scanner calls infected: tenants, uids.

        Raises Unavailable.
        """
        installers: list[list[str]] = (await self._service.json(caller, "infected_installers"))["installers"]
        return [(tenant_id, uid) for tenant_id, uid in installers]

    async def download_counts(
        self, caller: Caller, days: int, version_uids: Sequence[str] = ()
    ) -> Mapping[str, Mapping[str, int]]:
        """Return the downloads of the last days by version uid and day, of these versions or of all of them.

        Raises Unavailable.
        """
        body = {"days": days, "version_uids": list(version_uids)}
        timeout = PAGE_TIMEOUT if version_uids else STATISTICS_TIMEOUT
        answer = await self._service.json(caller, "download_counts", body, timeout=timeout)
        versions: Mapping[str, Mapping[str, int]] = answer["versions"]
        return versions

    async def last_downloads(self, caller: Caller, days: int) -> Downloads:
        """Return when each version was downloaded in the last days. Raises Unavailable."""
        answer = await self._service.json(caller, "download_counts", {"days": days}, timeout=STATISTICS_TIMEOUT)
        last_days = {uid: max(by_day) for uid, by_day in answer["versions"].items()}
        return _DOWNLOADS.validate_python({"since": answer["since"], "last_days": last_days})

    async def download_totals(self, caller: Caller, days: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return the downloads of the last days by day, and those of popular versions by uid. Raises Unavailable."""
        answer = await self._service.json(caller, "download_totals", {"days": days})
        return answer["days"], answer["versions"]


def _batches(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    return (list(items[start : start + size]) for start in range(0, len(items), size))
