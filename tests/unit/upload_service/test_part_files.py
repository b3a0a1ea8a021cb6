"""The log of offsets beside the file of a transfer: what is read back after a crash at any byte."""

import errno
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from upload_service.model import StorageFull, Upload
from upload_service.storage.part_files import PROGRESS, PartFiles

UPLOAD = Upload("acme", "f", "id", total=1 << 40)
ENTRY = 15  # bytes


@pytest.fixture
def parts(tmp_path: Path) -> PartFiles:
    return PartFiles(tmp_path)


def store(parts: PartFiles, offset: int) -> None:
    """Store ten bytes after those before `offset`."""
    with closing(parts.open(replace(UPLOAD, offset=offset), None)) as file:
        file.write([b"0123456789"])
        file.sync()
        file.log()


def stored(parts: PartFiles) -> int:
    return parts.progress(UPLOAD).offset


def log_of(parts: PartFiles) -> Path:
    return parts.path(UPLOAD).with_name(PROGRESS)


def test_the_last_offset_is_read(parts: PartFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.storage.part_files.LOG_END", 4 * ENTRY)
    assert stored(parts) == 0
    for offset in range(0, 100, 10):
        store(parts, offset)
        assert stored(parts) == offset + 10
    assert log_of(parts).stat().st_size > 4 * ENTRY  # Its end is enough.


def test_an_empty_log_has_no_offset(parts: PartFiles) -> None:
    log_of(parts).parent.mkdir(parents=True)
    log_of(parts).touch()
    assert stored(parts) == 0


def test_a_record_that_is_ahead_of_the_log_counts(parts: PartFiles) -> None:
    store(parts, 0)
    assert parts.progress(replace(UPLOAD, offset=99)).offset == 99


@pytest.mark.parametrize("fill", [b"", b"\0"], ids=["short", "zeros"])
def test_an_entry_torn_at_any_byte_leaves_the_offset_before(parts: PartFiles, fill: bytes) -> None:
    store(parts, 0)
    store(parts, 10)
    log = log_of(parts)
    before, entry = log.read_bytes()[:-ENTRY], log.read_bytes()[-ENTRY:]
    for length in range(ENTRY):
        for torn in (entry[:length] + fill * (ENTRY - length), fill * (ENTRY - length) + entry[ENTRY - length :]):
            log.write_bytes(before + torn)
            assert stored(parts) == 10, torn
            store(parts, 15)  # The next entry counts again.
            assert stored(parts) == 25, torn


def replace_function(patched: pytest.MonkeyPatch, name: str, call: Callable[..., Any]) -> None:
    """Replace a function of `os` for the log alone."""
    real = getattr(os, name)

    def choose(descriptor: int, *arguments: Any) -> Any:
        is_log = Path(f"/proc/self/fd/{descriptor}").readlink().name == PROGRESS
        return (call if is_log else real)(descriptor, *arguments)

    patched.setattr(os, name, choose)


@pytest.mark.parametrize("function", ["write", "fdatasync"])
@pytest.mark.parametrize("offset", [0, 10], ids=["first entry", "later entry"])
def test_an_entry_that_cannot_be_written_is_none(
    parts: PartFiles, monkeypatch: pytest.MonkeyPatch, function: str, offset: int
) -> None:
    if offset:
        store(parts, 0)

    def fail(*_: object) -> None:
        raise OSError(errno.EDQUOT, "a fault of a test")

    with monkeypatch.context() as patched:
        replace_function(patched, function, fail)
        with pytest.raises(StorageFull):
            store(parts, offset)
    assert stored(parts) == offset


def test_a_part_of_an_entry_is_removed(parts: PartFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with monkeypatch.context() as patched:
        replace_function(patched, "write", lambda descriptor, data: real(descriptor, data[:5]))
        with pytest.raises(StorageFull):
            store(parts, 0)
    assert log_of(parts).read_bytes() == b""


def test_the_bytes_are_on_the_disk_before_their_offset(parts: PartFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[tuple[str, str]]()

    def recorded(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(descriptor: int, *arguments: Any) -> Any:
            calls.append((name, Path(f"/proc/self/fd/{descriptor}").readlink().name))
            return real(descriptor, *arguments)

        return call

    for name in ("pwrite", "fsync", "write", "fdatasync"):
        monkeypatch.setattr(os, name, recorded(name))
    store(parts, 0)
    part, folders = "upload_f.part", ["id.0", "transfers", "acme"]
    assert calls[:2] == [("pwrite", part), ("fsync", part)]
    assert [name for _, name in calls[2:5]] == folders
    assert calls[6:] == [("write", PROGRESS), ("fdatasync", PROGRESS), ("fsync", "id.0")]
    calls.clear()
    store(parts, 10)
    assert calls == [("pwrite", part), ("fsync", part), ("write", PROGRESS), ("fdatasync", PROGRESS)]
