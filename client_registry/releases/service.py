"""Releases of the client program: what `client_version` answers (section 4.2)."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import uuid4

from client_registry.model import Clock, Installer, Release, utc_now
from common.auth.callers import Caller
from common.concurrency.background import with_each
from common.errors import InvalidField, Problem, Unavailable, UpstreamProblem
from common.tenants import Tenant

BEFORE_THE_FIRST = "0.0.0.0"  # noqa: S104  a version, not an address
UNFINISHED_FOR = timedelta(seconds=60)
_PARTS = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){3}")


def release_version(field: str, text: str) -> str:
    """Four numeric parts of 0..65535, as Windows has them, without leading zeros.

    Raises:
        InvalidField: it is something else.
    """
    parts = [int(part) for part in text.split(".")] if _PARTS.fullmatch(text) else []
    if not parts or max(parts) > 65535:
        raise InvalidField(field, "must be four numbers from 0 to 65535 with dots between them, such as 1.4.0.2")
    return ".".join(str(part) for part in parts)


class ReleaseStore(Protocol):
    """Where releases are kept; the store decides that a version is published once."""

    async def latest(self, tenant_id: str) -> Release | None: ...

    async def add(self, tenant_id: str, release: Release) -> None:
        """Raises ReleaseExists."""

    async def reserve(self, tenant_id: str, uid: str, version: str, at: datetime) -> None:
        """Keep a version for a release that is being published. Raises ReleaseExists."""

    async def activate(self, tenant_id: str, release: Release) -> bool:
        """Turn what was reserved into the release; whether it was still reserved."""

    async def abandon(self, tenant_id: str, uid: str) -> None:
        """Give the version of an unfinished release free; the rest waits for `unfinished`."""

    async def remove(self, tenant_id: str, uid: str) -> None:
        """Forget an unfinished release."""

    async def unfinished(self, before: datetime) -> Sequence[tuple[str, str]]:
        """Tenant and uid of what was reserved before a moment and never became a release."""


class Installers(Protocol):
    """What is asked of upload_service; see `client_registry.outgoing.upload_service`."""

    async def claim_installer(self, caller: Caller, server_filename: str, uid: str) -> Installer: ...

    async def release_installers(self, caller: Caller, uids: Sequence[str]) -> None: ...


class Releases:
    """Publishes versions of the client program and knows the latest."""

    def __init__(self, store: ReleaseStore, installers: Installers, now: Clock = utc_now) -> None:
        self._store = store
        self._installers = installers
        self._now = now

    async def latest(self, tenant_id: str) -> Release | None:
        """The one published last, whatever its number: publishing an older version takes clients back to it."""
        return await self._store.latest(tenant_id)

    async def publish(self, caller: Caller, version: str, server_filename: str) -> Release:
        """Make a version the latest, with the uploaded file of that name unless it is "".

        Raises:
            ReleaseExists: it was published before.
            Answered: upload_service refuses the file (404, 407).
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
        """Undo, in all tenants, what a crash or an answer that never came left unfinished for a minute."""
        await with_each("sweeper", await self._store.unfinished(self._now() - UNFINISHED_FOR), self._undo)

    async def _undo(self, begun: tuple[str, str]) -> None:
        tenant_id, uid = begun
        await self._store.abandon(tenant_id, uid)  # From here on it cannot be activated any more.
        await self._installers.release_installers(Caller.service(Tenant(tenant_id)), [uid])
        await self._store.remove(tenant_id, uid)

    async def _claim(self, caller: Caller, server_filename: str, uid: str) -> Installer:
        try:
            return await self._installers.claim_installer(caller, server_filename, uid)
        except Problem as problem:
            if isinstance(problem, UpstreamProblem) and problem.status < 500:
                await self._store.remove(caller.tenant_id, uid)
            else:
                # The file may be linked to the uid all the same, now or in a moment: the sweep will see to it.
                await self._store.abandon(caller.tenant_id, uid)
            raise
