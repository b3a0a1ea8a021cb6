"""An installer is copied completely from its current storage, or not at all."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from common.errors import Unavailable
from deploy.backup.installers import CopyOutcome, InstallerSource, copy_installer
from deploy.terminal import FileProgress
from tests.support.samples.stored_installer import CONTENT, UPLOAD
from upload_service.model import Damage, Status, StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.part_files import PartFiles


class Records:
    """The upload record at the time of the second read."""

    def __init__(self, now: Upload | None) -> None:
        self._now = now

    async def find(self, upload: Upload) -> Upload | None:
        assert upload.upload_id == UPLOAD.upload_id
        return self._now


def home(folder: Path, content: bytes | None) -> FolderStorage:
    if content is not None:
        (folder / "acme").mkdir(parents=True)
        (folder / "acme" / UPLOAD.server_filename).write_bytes(content)
    return FolderStorage(folder, PartFiles(folder))


@pytest.mark.parametrize(
    ("in_folder", "in_bucket", "now", "outcome"),
    [
        (CONTENT, None, UPLOAD, CopyOutcome.COPIED),
        (None, CONTENT, replace(UPLOAD, storage=StorageKind.S3), CopyOutcome.COPIED),
        (None, None, UPLOAD, CopyOutcome.MISSING),
        (None, None, None, CopyOutcome.GONE),
        (None, None, replace(UPLOAD, status=Status.DELETING), CopyOutcome.GONE),
        (CONTENT[:-1], None, UPLOAD, CopyOutcome.ALTERED),
        (CONTENT[:-1] + b"?", None, UPLOAD, CopyOutcome.ALTERED),
    ],
    ids=["there", "moved", "missing", "deleted", "being-deleted", "shorter", "other-bytes"],
)
async def test_a_copy_has_the_expected_outcome(
    tmp_path: Path, in_folder: bytes | None, in_bucket: bytes | None, now: Upload | None, outcome: CopyOutcome
) -> None:
    homes = StorageBackends(
        {StorageKind.FOLDER: home(tmp_path / "here", in_folder), StorageKind.S3: home(tmp_path / "there", in_bucket)}
    )
    target, progress = tmp_path / "copies" / "acme" / UPLOAD.server_filename, FileProgress()
    write = partial(copy_installer, target=target, progress=progress)
    assert await InstallerSource(Records(now).find, homes).copy(UPLOAD, write, progress) is outcome
    file_names = [path.name for path in target.parent.iterdir()]
    assert file_names == ([target.name] if outcome is CopyOutcome.COPIED else [])
    assert progress.done == (len(CONTENT) if outcome is CopyOutcome.COPIED else 0)


class UnavailableStorage(FolderStorage):
    """A storage that does not respond when it is read."""

    def read(self, *_: object) -> NoReturn:
        raise Unavailable("The object storage does not answer.")


async def test_an_installer_known_to_be_unreadable_does_not_stop_a_backup(tmp_path: Path) -> None:
    homes = StorageBackends({StorageKind.FOLDER: UnavailableStorage(tmp_path, PartFiles(tmp_path))})
    unreadable = Records(replace(UPLOAD, damage=Damage.UNREADABLE))
    write = partial(copy_installer, target=tmp_path / "copies" / UPLOAD.server_filename, progress=FileProgress())
    outcome = await InstallerSource(unreadable.find, homes).copy(UPLOAD, write, FileProgress())
    assert outcome is CopyOutcome.UNREADABLE
    with pytest.raises(Unavailable):
        await InstallerSource(Records(UPLOAD).find, homes).copy(UPLOAD, write, FileProgress())


@pytest.mark.parametrize(
    "upload",
    [
        replace(UPLOAD, tenant_id="../../pwn"),
        replace(UPLOAD, upload_id="../x"),
        replace(UPLOAD, file_id="../x"),
        replace(UPLOAD, original_file_id="x/../../y"),
    ],
    ids=["tenant", "upload", "file", "earlier file"],
)
def test_the_path_of_a_part_stays_in_its_folder(tmp_path: Path, upload: Upload) -> None:
    with pytest.raises(ValueError, match="not one plain name"):
        PartFiles(tmp_path).path(upload)
