"""Creates, lists and deletes versions together with their installer files.

A version is `pending` until its file is claimed, then `active`, and `deleting` until its file is deleted. Other modules
see active versions only. `sweep` finishes interrupted operations. A version with an external installer takes the same
steps, so that it notices a deletion of its package.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from pydantic import TypeAdapter

from catalog_service.catalog.cache import CatalogCache
from catalog_service.identities.service import Identities
from catalog_service.model.identities import IdentityTaken, SharedIdentity, normalize_names
from catalog_service.model.installers import DamagedFile, FinishedUpload, InstallerFile
from catalog_service.model.packages import PackageNotFound, VersionExists, VersionNotFound
from catalog_service.model.versions import (
    HiddenVersion,
    PackageVersion,
    PendingVersion,
    file_fields,
    newest_first,
)
from catalog_service.model.winget_rules import Refusal, package_refusal, winget_refusals
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.versions.store import MongoUploadStore, MongoVersionStore
from common.auth.internal_tokens import Caller
from common.auth.roles import EVERY_PACKAGE
from common.caching import FifoCache
from common.concurrency.background import with_each
from common.errors import Problem
from common.events import Event, Events, Outcome
from common.telemetry import log
from common.telemetry.metrics import Metrics
from common.tenants import Tenant, VersionKey

SWEEP_AGE = 60  # seconds; a request ends long before


@dataclass(frozen=True)
class VersionPage:
    """Versions with the reasons why winget refuses them, and the number of versions on all pages.

    `winget_refusal` is the reason why winget clients see no version of the package, if any.
    """

    rows: Sequence[tuple[PackageVersion, Sequence[Refusal]]]
    total: int
    winget_refusal: Refusal | None


class ReleaseControl(Protocol):
    """The part of release control that new and deleted versions need."""

    async def control_of_new(self, tenant_id: str) -> tuple[bool, bool]:
        """Whether a new version begins before the first ring, and whether nobody downloads its file before its scan."""

    async def begin(self, tenant_id: str, uid: str) -> None:
        """Let a new version enter the rings that are open to it; later, if that is not possible now."""

    async def remember_signers(self, tenant_id: str, uids: Sequence[str]) -> None:
        """Remember the signers of hidden versions, before their files are deleted. Raises Unavailable."""


@dataclass(frozen=True)
class Versions:
    """Creates, lists and deletes versions, and lists finished uploads until a version or a release uses them."""

    store: MongoVersionStore
    uploads: MongoUploadStore
    installers: UploadService
    releases: ReleaseControl
    identities: Identities

    async def of_package(self, caller: Caller, package_id: str) -> Sequence[PackageVersion]:
        """Return the newest first. Raises PackageNotFound."""
        versions = await self.store.of_package(caller.tenant_id, package_id)
        if versions is None:
            raise PackageNotFound(package_id=package_id)
        return newest_first(versions)

    async def find(self, caller: Caller, uid: str) -> PackageVersion:
        """Raises VersionNotFound."""
        version = await self.store.find(caller.tenant_id, uid)
        if version is None or await self.store.package_uid(caller.tenant_id, version.package_id) is None:
            raise VersionNotFound(uid=uid)
        return version

    async def with_refusals(self, caller: Caller, uid: str) -> tuple[PackageVersion, Sequence[Refusal]]:
        """Return a version, and the reasons why winget clients refuse it, if any. Raises VersionNotFound."""
        version = await self.find(caller, uid)
        fields = {"version": version.version, "channel": version.channel}  # Others cannot be the same installer.
        others = await self.store.of_package(caller.tenant_id, version.package_id, **fields) or ()
        return version, winget_refusals([version, *(other for other in others if other.uid != uid)]).get(uid, ())

    async def shared_identities(self, caller: Caller, version: PackageVersion) -> Sequence[SharedIdentity]:
        """Return the identities of a version and its package that other packages have, too."""
        return await self.identities.shared_by_version(caller.tenant_id, version)

    async def page_with_refusals(self, caller: Caller, package_id: str, offset: int, limit: int) -> VersionPage:
        """Return at most `limit` versions with the reasons why winget refuses them. Raises PackageNotFound."""
        versions = await self.of_package(caller, package_id)
        by_channel = groupby(sorted(versions, key=attrgetter("channel")), key=attrgetter("channel"))
        refusals = {uid: reasons for _, group in by_channel for uid, reasons in winget_refusals([*group]).items()}
        rows = [(version, refusals.get(version.uid, ())) for version in versions[offset : offset + limit]]
        return VersionPage(rows, len(versions), package_refusal(package_id, versions))

    async def add(self, caller: Caller, version: PackageVersion) -> str:
        """Create a version with its uploaded file, and return its uid. Repeating an interrupted request continues it.

        Raises PackageNotFound, VersionExists if the tenant's version key is taken in the package, IdentityTaken, or
        another Problem if upload_service refuses the file (403, 404, 407) or does not answer.
        """
        caller.require_package(version.package_id)
        package_uid = await self.store.package_uid(caller.tenant_id, version.package_id)
        if package_uid is None:
            raise PackageNotFound(package_id=version.package_id)
        await normalize_names(version)
        if caller.is_restricted and version.server_filename:
            # Checked before the version is stored: the sweeper finishes a stored one with all rights.
            await self.installers.check_uploader(caller, version.server_filename)
        pending = await self._reserve(
            caller.tenant, PendingVersion(caller.tenant_id, package_uid, version, caller.person, caller.packages)
        )
        await self.finish(caller, pending)
        return pending.version.uid

    async def finish(self, caller: Caller, pending: PendingVersion) -> None:
        """Claim the file of a pending version and activate the version; delete it if the claim is refused.

        Raises as `add` does; VersionExists also if another request, or the sweeper, has just finished it.
        """
        tenant_id, version = pending.tenant_id, pending.version
        # A change of the policy after this finds the pending version.
        is_controlled, is_withheld = await self.releases.control_of_new(tenant_id)
        try:
            # Checked again: a deletion that missed our row began before this query.
            if await self.store.package_uid(tenant_id, version.package_id) != pending.package_uid:
                raise PackageNotFound(package_id=version.package_id)
            # Two pending versions with one identity find each other here, so that not both are published.
            await self._require_free_identities(pending, version.identities)
            # The publisher of an external installer declared its digest.
            file = InstallerFile(size=0, sha256=version.sha256)
            if not version.installer_url:
                file = await self.installers.claim(caller, version.server_filename, version.uid, withheld=is_withheld)
        except Problem as problem:
            if problem.status < 500:  # After another error the claim may have succeeded; a retry finds out.
                await self.store.discard(tenant_id, version.uid)
            raise
        fields = file_fields(version, file)
        if fields["identities"] != version.identities:  # The file was not inspected before.
            try:
                await self._require_free_identities(pending, fields["identities"])
            except IdentityTaken:
                await self.installers.release(caller, [version.uid])
                await self.store.discard(tenant_id, version.uid)
                raise
        if version.server_filename:
            await self.uploads.link(tenant_id, version.server_filename)
        if await self.store.activate(tenant_id, version, file, is_controlled=is_controlled):
            if is_controlled:
                await self.releases.begin(tenant_id, version.uid)
            return
        if await self.store.find(tenant_id, version.uid) is not None:
            raise VersionExists(version=version.version)
        await self.installers.release(caller, [version.uid])
        raise PackageNotFound(package_id=version.package_id)

    async def delete(self, caller: Caller, package_id: str, uids: Sequence[str]) -> None:
        """Delete these versions and their files, all of them or none.

        Raises PackageNotFound, VersionNotFound if the package lacks one of them, or Unavailable if the files could not
        be deleted yet; the versions are hidden already.
        """
        caller.require_package(package_id)
        if await self.store.package_uid(caller.tenant_id, package_id) is None:
            raise PackageNotFound(package_id=package_id)
        await self.store.hide(caller.tenant_id, package_id, uids)
        await self._remove(caller, uids)

    async def remove_all(self, caller: Caller, package_uid: str) -> None:
        """Delete all versions of a package and their files. Raises Unavailable."""
        await self._remove(caller, await self.store.hide_all(caller.tenant_id, package_uid))

    async def finish_deletion(self, caller: Caller, hidden: HiddenVersion) -> None:
        """Delete a hidden version with its file, also an abandoned one. Raises Unavailable."""
        await self._release(caller, [hidden.uid])
        await self.store.delete_record(hidden)

    async def sweep(self) -> None:
        """Finish or undo what stopped a minute ago, for all tenants. Failures are tried again in the next sweep.

        Several replicas may sweep at once, because each step may be repeated.
        """

        async def finish(version: PendingVersion | HiddenVersion) -> None:
            caller = Caller.service(Tenant(version.tenant_id))
            if isinstance(version, HiddenVersion):
                await self.finish_deletion(caller, version)
                return
            try:
                await self.finish(caller, version)
            except Problem as problem:
                if problem.status >= 500:
                    raise
                log.info("version_undone", code=problem.code, detail=problem.detail)  # A refusal undoes the version.

        await with_each("sweeper", await self.store.find_unfinished(SWEEP_AGE), finish)

    async def damaged(self, caller: Caller) -> Sequence[DamagedFile]:
        """Return the files to publish again, the oldest finding first. Raises Unavailable."""
        files = await self.installers.damaged(caller)
        uids = [file.version_uid for file in files if file.version_uid]
        names = {name.uid: name for name in await self.store.names_of(caller.tenant_id, uids)} if uids else {}
        named = [(file, names.get(file.version_uid)) for file in files]
        return [
            replace(file, package_id=name.package_id, version=name.version) if name else file for file, name in named
        ]

    async def listen(self, events: Events, metrics: Metrics) -> None:
        """Store every upload that is announced from now on. Events may come twice."""
        help_text = "Events: failed are those that are not tried again, unreadable what was none of ours."
        counter = metrics.counter("pkgrepo_events_handled_total", help_text, "type", "outcome")
        counters = {outcome: counter.labels(UPLOAD_FINISHED, outcome) for outcome in Outcome}
        await events.subscribe(QUEUE, UPLOAD_FINISHED, self._note_upload, lambda outcome: counters[outcome].inc())

    async def unassigned(self, caller: Caller) -> Sequence[FinishedUpload]:
        """Return the uploads that a new version can use, the oldest first. Raises Unavailable.

        upload_service confirms them, because the events may be outdated: files are deleted, and releases use some.
        """
        uploads = await self.uploads.unlinked(caller.tenant_id)
        unclaimed = await self.installers.unclaimed(caller, [upload.server_filename for upload in uploads])
        return [upload for upload in uploads if upload.server_filename in unclaimed]

    async def _note_upload(self, event: Event) -> None:
        upload = _UPLOAD.validate_python({**event.data, "finished_at": event.time})
        await self.uploads.note(event.tenant_id, upload)

    async def _remove(self, caller: Caller, uids: Sequence[str]) -> None:
        if uids:
            await self._release(caller, uids)
            await self.store.remove(caller.tenant_id, uids)

    async def _release(self, caller: Caller, uids: Sequence[str]) -> None:
        await self.releases.remember_signers(caller.tenant_id, uids)
        await self.installers.release(caller, uids)

    async def require_free_identities(self, caller: Caller, version: PackageVersion) -> None:
        """Raise IdentityTaken if the caller may not take an identity that other packages have."""
        await normalize_names(version)
        pending = PendingVersion(caller.tenant_id, "", version, packages=caller.packages)
        await self._require_free_identities(pending, version.identities)

    async def _require_free_identities(self, pending: PendingVersion, identities: Sequence[str]) -> None:
        if pending.packages != EVERY_PACKAGE:
            key = (pending.tenant_id, pending.version.package_id)
            await self.identities.require_free(*key, identities, pending.packages)

    async def _reserve(self, tenant: Tenant, pending: PendingVersion) -> PendingVersion:
        version = pending.version
        by_version = tenant.version_key is VersionKey.VERSION
        try:
            # Versions from a time with the key `installer` do not have their version string as key.
            if by_version and await self.store.has_version(tenant.tenant_id, version.package_id, version.version):
                raise VersionExists(version=version.version)
            await self.store.reserve(pending, version.version if by_version else version.installer_key)
        except VersionExists:
            equal_version = await self.store.find_equal_pending(pending)
            if equal_version is None:
                raise
            if pending.packages == EVERY_PACKAGE:  # A token began it, and an administrator goes on.
                return replace(equal_version, packages=EVERY_PACKAGE)
            return equal_version
        return pending


MEMORY = 8 << 20  # bytes
OVERHEAD = 512  # bytes of a cache entry beside its body


class Listings:
    """Lists the versions of packages."""

    def __init__(self, catalogs: CatalogCache, versions: Versions, *, memory: int = MEMORY) -> None:
        self._catalogs = catalogs
        self._versions = versions
        self._bodies: FifoCache[tuple[str, str, str, str, str, int], bytes] = FifoCache(
            memory, size=lambda body: len(body) + OVERHEAD
        )

    async def of_package(
        self, caller: Caller, package_id: str, render: Callable[[Sequence[PackageVersion]], bytes], *, expires: int
    ) -> tuple[bytes, str]:
        """Render the versions with addresses for this caller that are valid until `expires`.

        Return the body and the revision of the catalog; "" while the catalog is being changed. Raises PackageNotFound.
        """
        revision = (await self._catalogs.check(caller.tenant_id)).state.stable_revision
        key = caller.tenant_id, revision, package_id, caller.base_url, caller.site_url, expires
        body = self._bodies.get(key)
        if body is None:
            body = render(await self._versions.of_package(caller, package_id))
            if revision:
                self._bodies.put(key, body)
        return body, revision


QUEUE = "catalog_service"
UPLOAD_FINISHED = "upload.finished"
_UPLOAD = TypeAdapter(FinishedUpload)
