"""The progress file of a transfer: what is read back after a crash at any byte."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upload_service.storage.progress_file import ProgressFile

SLOT = 32  # bytes
SECOND = 4096  # the position of the second slot


@pytest.fixture
def file(tmp_path: Path) -> ProgressFile:
    return ProgressFile(tmp_path / "progress", fence=3)


def test_the_last_offset_is_read(file: ProgressFile) -> None:
    for offset in (10, 20, 30, 40):
        file.write(offset)
        assert file.read() == offset


def test_a_missing_file_has_no_offset(file: ProgressFile) -> None:
    assert file.read() == 0


def test_an_empty_file_has_no_offset(file: ProgressFile) -> None:
    file.path.touch()
    assert file.read() == 0
    file.write(10)
    assert file.read() == 10


def test_an_offset_of_another_lease_does_not_count(file: ProgressFile) -> None:
    file.write(10)
    for fence in (2, 4):
        assert ProgressFile(file.path, fence).read() == 0


def test_an_offset_counts_beside_a_later_one_of_an_older_lease(file: ProgressFile) -> None:
    file.write(30)  # Its chunk failed, and the lease was released at 10.
    later = ProgressFile(file.path, fence=4)
    later.write(20)
    assert (later.read(), file.read()) == (20, 30)
    later.write(25)
    assert (later.read(), file.read()) == (25, 0)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_write_torn_at_any_byte_leaves_the_offset_before(
    file: ProgressFile, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    for number in range(1, writes + 1):
        file.write(number * 1000)
    before, real = file.path.read_bytes(), os.pwrite
    for length in range(SLOT):
        file.path.write_bytes(before)

        def torn(descriptor: int, data: bytes, position: int, *, _length: int = length) -> int:
            return real(descriptor, data[:_length], position)

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", torn)
            file.write((1 << 60) + 12345)
        assert file.read() == writes * 1000, length


@pytest.mark.parametrize("position", [0, SECOND])
@pytest.mark.parametrize("damage", [lambda old: bytes(len(old)), lambda old: bytes([old[0] ^ 1]) + old[1:]])
def test_a_damaged_slot_does_not_count(file: ProgressFile, position: int, damage: Callable[[bytes], bytes]) -> None:
    file.write(10)  # in the second slot
    file.write(20)
    content = bytearray(file.path.read_bytes())
    content[position : position + SLOT] = damage(bytes(content[position : position + SLOT]))
    file.path.write_bytes(content)
    assert file.read() == (10 if position == 0 else 20)


@pytest.mark.parametrize("failing", ["fsync", "pwrite"])
def test_the_name_is_on_the_disk_before_the_first_offset(
    file: ProgressFile, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    calls = list[str]()

    def record(name: str, *, fails: bool) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            if fails:
                raise OSError(errno.EIO, "a fault of a test")
            return real(*arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, record(failing, fails=True))
        with pytest.raises(OSError, match="a fault of a test"):
            file.write(10)
    calls.clear()
    for name in ("fsync", "pwrite"):
        monkeypatch.setattr(os, name, record(name, fails=False))
    for offset in (10, 20):
        file.write(offset)
    assert calls == ["fsync", "pwrite", "pwrite"]
