"""What must be true after every fault, checked on the databases and the files themselves; see `violations`."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pymongo import AsyncMongoClient

from common.mongo import Document
from tests.support.processes.cluster import Cluster
from tests.support.whole.publishing import Published
from tests.support.whole.services import Api

COMPLETE = ("complete", "linked")
TRANSFERS = "transfers"
COLLECTIONS = ("catalog.packages", "catalog.versions", "catalog.finished_uploads", "upload.uploads", "upload.quotas")


async def violations(cluster: Cluster, tenant_ids: Collection[str]) -> list[str]:
    """Which of the invariants I1 to I6 do not hold for these tenants, each as a sentence; none while all is well.

    The cluster is at rest: nobody asks it for anything, and it had the time to announce what is complete.
    """
    found: list[str] = []
    for tenant_id in tenant_ids:
        state = await State.read(cluster.mongo, tenant_id)
        folder = cluster.stores.installers / tenant_id
        for problems in (
            _files_of_versions(state, folder),
            _versions_without_packages(state),
            _quota(state),
            _announcements(state),
            _unknown_files(state, folder),
        ):
            found += [f"{tenant_id}: {problem}" for problem in problems]
    return found


async def missing_versions(api: Api, acknowledged: Iterable[Published]) -> list[str]:
    """Which versions that were answered with 201 do not come back as they were sent, each as a sentence."""
    found = []
    for published in acknowledged:
        version = await api.call("GET", "get_specific_package_version", published.uid)
        if version.status != 200:
            found.append(f"version {published.uid} of {published.package_id} is answered with {version.status}")
            continue
        async with api.session.get(version.body["INSTALLER_URL"]) as answer:
            same = answer.status == 200 and await answer.read() == published.content
        if not same or version.body["INSTALLER_SHA256"] != published.sha256:
            found.append(f"version {published.uid} of {published.package_id} has not the bytes that were sent")
    return found


async def readable_by_other_tenant(owner: Api, other: Api, published: Iterable[Published], file_id: str) -> list[str]:
    """I7: which records of `owner` the administrator of another tenant can read, each as a sentence."""
    paths = [("get_specific_package_version", version.uid) for version in published]
    paths += [("get_package_versions", version.package_id) for version in published]
    found = [
        f"{other.tenant_id} reads {'/'.join(path)} of {owner.tenant_id}"
        for path in paths
        if (await other.call("GET", *path)).status != 404
    ]
    if (await other.call("GET", "upload_package_version", headers={"X-File-ID": file_id})).status != 404:
        found.append(f"{other.tenant_id} reads the transfer {file_id} of {owner.tenant_id}")
    return found


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
        records: dict[str, list[Document]] = defaultdict(list)
        for name in (
            "catalog.packages",
            "catalog.versions",
            "catalog.finished_uploads",
            "upload.uploads",
            "upload.quotas",
        ):
            database, _, collection = name.partition(".")
            records[name] = await mongo[database][collection].find({"tenant_id": tenant_id}).to_list()
        return cls(records)

    def unsettled(self) -> list[str]:
        """What a sweeper or a collector still has to do, each as a sentence."""
        found = [f"package {package['package_id']} is being deleted" for package in self.packages if package["halfway"]]
        found += [f"version {row['uid']} is {row['state']}" for row in self.versions if row["state"] != "active"]
        linked = {row["uid"] for row in self.versions}
        for upload in self.uploads:
            if upload["status"] != "linked":
                found.append(f"upload {upload['upload_id']} is {upload['status']}")
            elif upload["version_uid"] not in linked:
                found.append(f"upload {upload['upload_id']} is linked to a version that does not exist")
        return found

    def duplicates(self) -> list[str]:
        """What took effect more than once, each as a sentence."""
        versions = Counter((row["package_id"], row["version"]) for row in self.versions if row["state"] == "active")
        heard = Counter(row["server_filename"] for row in self.finished_uploads)
        linked = Counter(upload["version_uid"] for upload in self.uploads if upload["status"] == "linked")
        return [
            f"{what} {name} is there {number} times"
            for what, counted in (("version", versions), ("announcement of", heard), ("file of version", linked))
            for name, number in counted.items()
            if number > 1
        ]


def _files_of_versions(state: State, folder: Path) -> Iterator[str]:
    """I1: every version that is seen has a file whose SHA-256 equals its record, unless its installer is elsewhere."""
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
            yield f"the file of version {version['uid']} is not there"
        elif not hashlib.sha256(path.read_bytes()).hexdigest() == upload["sha256"] == version["sha256"]:
            yield f"the file of version {version['uid']} is not the one in its record"


def _file_of(upload: Document, folder: Path) -> Path:
    """Where a complete file is; under its transfer's name where whoever completed it died before naming it."""
    path = folder / upload["server_filename"]
    part = folder / TRANSFERS / f"{upload['upload_id']}.{upload['part']}" / f"upload_{upload['file_id']}.part"
    return part if part.exists() and not path.exists() else path


def _versions_without_packages(state: State) -> Iterator[str]:
    """I2."""
    known = {package["package_uid"] for package in state.packages}
    for version in state.versions:
        if version["package_uid"] not in known:
            yield f"version {version['uid']} belongs to no package"


def _quota(state: State) -> Iterator[str]:
    """I3: used is the sum of linked files, reserved that of all others that came or are on their way."""
    quota: Document = state.quotas[0] if state.quotas else {"used": 0, "reserved": 0, "holds": {}}
    used = sum(upload["size"] for upload in state.uploads if upload["status"] == "linked")
    if quota["used"] != used:
        yield f"{quota['used']} bytes are said to be used, and {used} are"
    if quota["reserved"] != sum(quota["holds"].values()):
        yield f"{quota['reserved']} bytes are reserved, and {sum(quota['holds'].values())} are held"
    # A transfer of which nothing is acknowledged may have been stopped before it reserved anything.
    wanted = {
        upload["upload_id"]: upload["total"]
        for upload in state.uploads
        if upload["status"] in {"open", "complete"} and (upload["offset"] or upload["upload_id"] in quota["holds"])
    }
    if quota["holds"] != wanted:
        yield f"{quota['holds']} is reserved, and {wanted} is on its way"


def _announcements(state: State) -> Iterator[str]:
    """I4: every complete upload is announced, and was heard of once."""
    heard = Counter(row["server_filename"] for row in state.finished_uploads)
    for upload in state.uploads:
        if upload["status"] not in COMPLETE:
            continue
        if not upload["announced"]:
            yield f"upload {upload['upload_id']} is complete and not announced"
        elif heard[upload["server_filename"]] != 1:
            yield f"upload {upload['upload_id']} was announced and had {heard[upload['server_filename']]} effects"


def _unknown_files(state: State, folder: Path) -> Iterator[str]:
    """I5 and I6: every file is known to a record, and only open transfers have files of transfers."""
    names = {upload.get("server_filename") for upload in state.uploads}
    open_ones = {upload["upload_id"] for upload in state.uploads if upload["status"] == "open"}
    unnamed = {_file_of(upload, folder) for upload in state.uploads if upload["status"] in COMPLETE}
    for path in folder.glob("**/*"):
        if path.is_dir() or path in unnamed:
            continue
        if path.parent == folder and path.name not in names:
            yield f"no record knows the file {path.name}"
        elif path.parent != folder and path.parent.name.partition(".")[0] not in open_ones:
            yield f"{path.relative_to(folder)} is the file of a transfer that is over"
