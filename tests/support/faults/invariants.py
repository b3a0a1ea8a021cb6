"""Invariants that hold after every fault, checked in the databases and files. See `violations`."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pymongo import AsyncMongoClient

from common.mongo import Document
from tests.support.processes.cluster import Cluster
from tests.support.system.publishing import Published
from tests.support.system.services import Api
from tests.support.wait import until

COMPLETE = ("complete", "linked")
TRANSFERS = "transfers"
COLLECTIONS = ("catalog.packages", "catalog.versions", "catalog.finished_uploads", "upload.uploads", "upload.quotas")


async def violations(cluster: Cluster, tenant_ids: Collection[str]) -> list[str]:
    """The violations of the invariants I1 to I6 for these tenants, each as a sentence.

    The cluster must be idle, and complete uploads must be announced.
    """
    problems: list[str] = []
    for tenant_id in tenant_ids:
        state = await State.read(cluster.mongo, tenant_id)
        folder = cluster.stores.installers / tenant_id
        for found in (
            _files_of_versions(state, folder),
            _versions_without_packages(state),
            _quota(state),
            _announcements(state),
            _unknown_files(state, folder),
        ):
            problems += [f"{tenant_id}: {problem}" for problem in found]
    return problems


async def remaining_violations(cluster: Cluster, tenant_ids: Collection[str], *, timeout: float) -> list[str]:
    """The violations that the services do not fix within `timeout` seconds, as the last look found them.

    A later look may find more for a moment: it may see a deletion halfway that had not begun at an earlier one.
    """
    found: list[str] = []

    async def none() -> bool:
        found[:] = await violations(cluster, tenant_ids)
        return not found

    with suppress(TimeoutError):
        await until(none, timeout=timeout)
    return found


async def missing_versions(api: Api, acknowledged: Iterable[Published]) -> list[str]:
    """The acknowledged versions that are missing or differ from the upload, each as a sentence."""
    problems = []
    for published in acknowledged:
        version = await api.call("GET", "get_specific_package_version", published.uid)
        if version.status != 200:
            problems.append(f"version {published.uid} of {published.package_id} is answered with {version.status}")
            continue
        async with api.session.get(version.body["INSTALLER_URL"]) as answer:
            same = answer.status == 200 and await answer.read() == published.content
        if not same or version.body["INSTALLER_SHA256"] != published.sha256:
            problems.append(f"version {published.uid} of {published.package_id} has not the bytes that were sent")
    return problems


class State:
    """The records of one tenant."""

    def __init__(self, records: dict[str, list[Document]]) -> None:
        self.packages = records["catalog.packages"]
        self.versions = records["catalog.versions"]
        self.finished_uploads = records["catalog.finished_uploads"]
        self.uploads = records["upload.uploads"]
        self.quotas = records["upload.quotas"]

    @classmethod
    async def read(cls, mongo: AsyncMongoClient[Document], tenant_id: str) -> "State":
        records: dict[str, list[Document]] = {}
        for name in COLLECTIONS:
            database, _, collection = name.partition(".")
            records[name] = await mongo[database][collection].find({"tenant_id": tenant_id}).to_list()
        return cls(records)

    def unsettled(self) -> list[str]:
        """The work left for sweeper and collector, each as a sentence."""
        problems = [
            f"package {package['package_id']} is being deleted" for package in self.packages if package["halfway"]
        ]
        problems += [f"version {row['uid']} is {row['state']}" for row in self.versions if row["state"] != "active"]
        for row in self.versions:
            release = row.get("release", {})
            if release.get("is_untold") or release.get("unaudited"):
                problems.append(f"the change of version {row['uid']} is not known to the other services")
        linked = {row["uid"] for row in self.versions}
        for upload in self.uploads:
            if upload["status"] != "linked":
                problems.append(f"upload {upload['upload_id']} is {upload['status']}")
            elif upload["version_uid"] not in linked:
                problems.append(f"upload {upload['upload_id']} is linked to a version that does not exist")
        return problems

    def duplicates(self) -> list[str]:
        """The records that exist more than once, each as a sentence."""
        versions = Counter((row["package_id"], row["version"]) for row in self.versions if row["state"] == "active")
        events = Counter(row["server_filename"] for row in self.finished_uploads)
        linked = Counter(upload["version_uid"] for upload in self.uploads if upload["status"] == "linked")
        return [
            f"{kind} {name} exists {number} times"
            for kind, counts in (("version", versions), ("announcement of", events), ("file of version", linked))
            for name, number in counts.items()
            if number > 1
        ]


def _files_of_versions(state: State, folder: Path) -> Iterator[str]:
    """I1: every active version has a file with the recorded SHA-256, unless its installer is external."""
    uploads = {upload.get("version_uid"): upload for upload in state.uploads if upload["status"] == "linked"}
    for version in state.versions:
        if version["state"] != "active" or version.get("installer_url"):
            continue
        upload = uploads.get(version["uid"])
        if upload is None:
            yield f"version {version['uid']} has no file linked to it"
            continue
        if upload.get("home", "folder") != "folder":
            continue
        path = _file_of(upload, folder)
        if not path.exists():
            yield f"the file of version {version['uid']} is missing"
        elif not hashlib.sha256(path.read_bytes()).hexdigest() == upload["sha256"] == version["sha256"]:
            yield f"the file of version {version['uid']} is not the one in its record"


def _file_of(upload: Document, folder: Path) -> Path:
    """The path of a complete file. It has the transfer's name if the service died before renaming it."""
    path = folder / upload["server_filename"]
    part = folder / TRANSFERS / f"{upload['upload_id']}.{upload['part']}" / f"upload_{upload['file_id']}.part"
    return part if part.exists() and not path.exists() else path


def _versions_without_packages(state: State) -> Iterator[str]:
    """I2: every version belongs to a package."""
    known = {package["package_uid"] for package in state.packages}
    for version in state.versions:
        if version["package_uid"] not in known:
            yield f"version {version['uid']} belongs to no package"


def _quota(state: State) -> Iterator[str]:
    """I3: `used` is the size of linked files, `reserved` the size of all other complete and open transfers."""
    quota: Document = state.quotas[0] if state.quotas else {"used": 0, "reserved": 0, "holds": {}}
    used = sum(upload["size"] for upload in state.uploads if upload["status"] == "linked")
    if quota["used"] != used:
        yield f"{quota['used']} bytes are recorded as used, and {used} are"
    if quota["reserved"] != sum(quota["holds"].values()):
        yield f"{quota['reserved']} bytes are reserved, and {sum(quota['holds'].values())} are held"
    # A transfer without an acknowledged byte may have stopped before its reservation.
    expected = {
        upload["upload_id"]: upload["total"]
        for upload in state.uploads
        if upload["status"] in {"open", "complete"} and (upload["offset"] or upload["upload_id"] in quota["holds"])
    }
    if quota["holds"] != expected:
        yield f"{quota['holds']} is reserved instead of {expected}"


def _announcements(state: State) -> Iterator[str]:
    """I4: every complete upload is announced and was received once."""
    received = Counter(row["server_filename"] for row in state.finished_uploads)
    for upload in state.uploads:
        if upload["status"] not in COMPLETE:
            continue
        if "announce" in upload["work"]:
            yield f"upload {upload['upload_id']} is complete and not announced"
        elif received[upload["server_filename"]] != 1:
            yield f"upload {upload['upload_id']} was announced and had {received[upload['server_filename']]} effects"


def _unknown_files(state: State, folder: Path) -> Iterator[str]:
    """I5 and I6: every file has a record, and only open transfers have part files."""
    names = {upload.get("server_filename") for upload in state.uploads}
    open_transfers = {upload["upload_id"] for upload in state.uploads if upload["status"] == "open"}
    unnamed = {_file_of(upload, folder) for upload in state.uploads if upload["status"] in COMPLETE}
    for path in folder.glob("**/*"):
        if path.is_dir() or path in unnamed:
            continue
        if path.parent == folder and path.name not in names:
            yield f"the file {path.name} has no record"
        elif path.parent != folder and path.parent.name.partition(".")[0] not in open_transfers:
            yield f"{path.relative_to(folder)} is the part file of an ended transfer"
