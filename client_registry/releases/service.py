"""Releases of the client program, which `client_version` reports."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from client_registry.releases.store import Installer, MongoReleaseStore, Release
from common.auth.internal_tokens import Caller
from common.concurrency.background import with_each
from common.errors import InvalidField, Problem, Unavailable, UpstreamProblem
from common.service_client.client import ServiceClient
from common.tenants import Tenant

BEFORE_THE_FIRST = "0.0.0.0"  # noqa: S104  a version, not an address
UNFINISHED_FOR = timedelta(seconds=60)
_PARTS = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){3}")


def release_version(field: str, text: str) -> str:
    """A Windows version: four numbers of 0..65535, without leading zeros. Raises InvalidField."""
    parts = [int(part) for part in text.split(".")] if _PARTS.fullmatch(text) else []
    if not parts or max(parts) > 65535:
        raise InvalidField(field, "must be four numbers from 0 to 65535 with dots between them, such as 1.4.0.2")
    return ".".join(str(part) for part in parts)


class Releases:
    """Publishes versions of the client program and finds the latest."""

    def __init__(
        self,
        store: MongoReleaseStore,
        upload_service: ServiceClient,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._upload_service = upload_service
        self._now = now

    async def latest(self, tenant_id: str) -> Release | None:
        """The release published last, not the highest: publishing an older version takes clients back to it."""
        return await self._store.latest(tenant_id)

    async def publish(self, caller: Caller, version: str, server_filename: str) -> Release:
        """Publish a version as the latest, with the uploaded file `server_filename` unless it is "".

        Raises:
            ReleaseExists: it was published before.
            UpstreamProblem: upload_service refuses the file (404, 407).
            Unavailable: upload_service does not answer.
        """
        uid = str(uuid4())
        if not server_filename:
            release = Release(uid, version, self._now())
            await self._store.add(caller.tenant_id, release)
            return release
        await self._store.reserve(caller.tenant_id, uid, version, self._now())
        installer = await self._claim(caller, server_filename, uid)
        release = Release(uid, version, self._now(), installer)
        if not await self._store.activate(caller.tenant_id, release):
            raise Unavailable("Publishing took too long and was undone; try again.")
        return release

    async def sweep(self) -> None:
        """Undo, in all tenants, the releases that a crash or a lost answer left unfinished for a minute."""
        await with_each("sweeper", await self._store.unfinished(self._now() - UNFINISHED_FOR), self._undo)

    async def _undo(self, unfinished: tuple[str, str]) -> None:
        tenant_id, uid = unfinished
        await self._store.abandon(tenant_id, uid)  # From here on it cannot be activated any more.
        body = {"version_uids": [uid]}  # Their files are deleted, if there are any.
        await self._upload_service.json(Caller.service(Tenant(tenant_id)), "release_installers", body)
        await self._store.remove(tenant_id, uid)

    async def _claim(self, caller: Caller, server_filename: str, uid: str) -> Installer:
        """Link an uploaded file to the release; safe to repeat. Refused with 404 or 407."""
        body = {"server_filename": server_filename, "version_uid": uid}
        try:
            file = await self._upload_service.json(caller, "claim_installer", body)
        except Problem as problem:
            if isinstance(problem, UpstreamProblem) and problem.status < 500:
                await self._store.remove(caller.tenant_id, uid)
            else:
                # The file may be linked to the uid all the same, now or in a moment: the sweep releases it.
                await self._store.abandon(caller.tenant_id, uid)
            raise
        return Installer(server_filename, file["size"], file["sha256"])
