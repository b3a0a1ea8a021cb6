"""The size limit of the log of `pkgrepo up`."""

from pathlib import Path

import pytest

from deploy.local import up


def test_a_large_log_is_rotated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "LIMIT", 1000)
    path = tmp_path / "some.log"
    with up.open_log(path) as log:
        for number in range(100):
            print(f"line {number:4}, and ä to be more than ASCII", file=log, flush=True)
    files = [path.with_name("some.log.1"), path]
    numbers = [int(line[5:9]) for file in files for line in file.read_text().splitlines()]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert len(numbers) > 25
    assert numbers == list(range(100 - len(numbers), 100))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["some.log", "some.log.1"]


def test_a_new_start_appends_to_the_log(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    for text in ("first\n", "second\n"):
        with up.open_log(path) as log:
            log.write(text)
    assert path.read_text() == "first\nsecond\n"
