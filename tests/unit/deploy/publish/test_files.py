"""The file that `pkgrepo publish` sends, and its progress."""

import hashlib
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from deploy.publish.files import BLOCK, open_file
from deploy.publish.model import FileChanged, FileUnusable
from deploy.terminal import READING, show_progress


async def test_a_file_is_digested_in_pieces(tmp_path: Path) -> None:
    path, sizes_reported = tmp_path / "setup.exe", list[int]()
    path.write_bytes(os.urandom(BLOCK + 1))
    async with open_file(path) as file:
        assert await file.sha256(sizes_reported.append) == hashlib.sha256(path.read_bytes()).hexdigest()
        assert await file.read(BLOCK, 1) == path.read_bytes()[-1:]
    assert sizes_reported == [BLOCK, BLOCK + 1]


@pytest.mark.parametrize("content", [b"longer than before", b"short", b"as long as it was"])
async def test_a_changed_file_returns_no_more_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "setup.exe"
    path.write_bytes(b"x" * len(b"as long as it was"))
    os.utime(path, (1, 1))
    async with open_file(path) as file:
        path.write_bytes(content)
        with pytest.raises(FileChanged):
            await file.read(0, 4)


@pytest.mark.parametrize("name", ["pipe.exe", "zero.exe", "folder.exe"])
async def test_pipes_devices_and_folders_are_refused_without_blocking(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.exe")
    (tmp_path / "zero.exe").symlink_to("/dev/zero")
    (tmp_path / "folder.exe").mkdir()
    with pytest.raises(FileUnusable, match="is no regular file"):
        async with open_file(tmp_path / name):
            pass


async def test_empty_and_missing_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.exe").touch()
    for name in ("empty.exe", "missing.exe"):
        with pytest.raises(FileUnusable, match=name):
            async with open_file(tmp_path / name):
                pass


def test_a_log_gets_a_line_for_each_tenth() -> None:
    written = io.StringIO()
    with show_progress(Console(file=written, width=200)) as rows, rows("[a].exe") as row:
        row.start(READING, 1000)
        row.update(1000)
        row.start("sending", 1000, 250)
        for done in (260, 299, 300, 310, 550, 540, 560, 1000):
            row.update(done)
    lines = ["sending 1.0 kB, from byte 250 on", "30 %", "55 %", "100 %"]
    assert written.getvalue().splitlines() == [f"[a].exe: {line}" for line in lines]


def test_a_terminal_gets_a_bar_for_each_file() -> None:
    written = io.StringIO()
    console = Console(file=written, width=120, force_terminal=True, color_system=None)
    with show_progress(console) as rows, rows("[a].exe") as first, rows("b.msi") as second:
        first.start("sending", 2000, 500)
        second.start(READING, 1000)
        second.update(1000)
    *_, last = written.getvalue().split("[a].exe")
    assert "sending" in last
    assert "0.5/2.0 kB" in last
    assert "reading" in last.partition("b.msi")[2]
    assert "1.0/1.0 kB" in last
