"""Files of catalogs leave nothing behind and do not use up the process's descriptors."""

import os
import resource
from pathlib import Path

import pytest

from catalog_service.catalog.snapshot import CatalogFiles
from common.http.zero_copy.sources import read_blocks
from tests.support.wait import until


def test_a_file_has_no_name_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    file = CatalogFiles(1 << 20).write(b"some ", b"bytes")

    assert list(tmp_path.iterdir()) == []
    assert read_blocks([file.range(2, file.length), b"!"]) == b"me bytes!"


async def test_a_file_is_closed_when_nothing_refers_to_it() -> None:
    file = CatalogFiles(1 << 20).write(b"bytes")
    descriptor = file.fileno()
    opened = os.fstat(descriptor)

    async def is_closed() -> bool:
        try:
            found = os.fstat(descriptor)
        except OSError:
            return True
        # Another file may have the numbers of the descriptor and of the inode again.
        return (found.st_ino, found.st_ctime_ns) != (opened.st_ino, opened.st_ctime_ns)

    block = file.range(0, 1)
    del file
    assert not await is_closed()
    del block

    await until(is_closed)


def test_small_files_leave_descriptors_for_connections() -> None:
    limit = 1 << 40
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert limit // CatalogFiles(limit).size(1) <= descriptors // 4
