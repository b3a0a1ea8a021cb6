"""Key files, rotated together with a key that services accept, and networks that shut out an address."""

import os
from pathlib import Path

import pytest

from common.auth.signing import LENGTH, RELOAD_INTERVAL
from deploy.local.folder import FolderProblem
from deploy.operator import key_files
from deploy.operator.key_files import KeyFiles
from deploy.operator.tenants import locked_out

OLD = "the-old-key-of-thirty-two-letters-and-more"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("session", "client-token"):
        (tmp_path / name).write_text(OLD)
    return tmp_path


@pytest.fixture
def key_contents(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """The contents of the session's key file during a rotation, without the wait."""
    contents: list[str] = []
    monkeypatch.setattr("deploy.operator.key_files.sleep", lambda _: contents.append((folder / "session").read_text()))
    return contents


def test_a_new_key_is_accepted_before_it_signs(folder: Path, key_contents: list[str]) -> None:
    assert [file.name for file in KeyFiles(folder).rotate()] == ["client-token", "session"]

    new, old = (folder / "session").read_text().split()
    assert old == OLD
    assert len(new) >= LENGTH
    assert key_contents == [f"{OLD}\n{new}"]
    assert new not in (folder / "client-token").read_text()


@pytest.mark.usefixtures("key_contents")
def test_the_keys_of_the_audit_log_are_not_rotated(folder: Path) -> None:
    audit_key = folder / "audit_key"
    audit_key.write_text("\n".join(["of today" * 5, "of yesterday" * 5, "of the day before" * 5]))
    before = audit_key.read_bytes()
    KeyFiles(folder).rotate()
    KeyFiles(folder).finish(keep_client_tokens=False)
    assert audit_key.read_bytes() == before


@pytest.mark.usefixtures("key_contents")
def test_a_finished_rotation_leaves_the_new_key(folder: Path) -> None:
    KeyFiles(folder).rotate()
    new = (folder / "session").read_text().split()[0]

    assert [file.name for file in KeyFiles(folder).finish(keep_client_tokens=False)] == ["client-token", "session"]
    assert (folder / "session").read_text() == new
    assert KeyFiles(folder).finish(keep_client_tokens=False) == []


@pytest.mark.usefixtures("key_contents")
def test_the_old_key_of_client_tokens_stays_while_needed(folder: Path) -> None:
    assert KeyFiles(folder).client_token_key() is None
    KeyFiles(folder).rotate()
    keys = KeyFiles(folder).client_token_key()
    assert keys
    assert keys.accepted[1] == OLD

    assert [file.name for file in KeyFiles(folder).finish(keep_client_tokens=True)] == ["session"]
    assert OLD in (folder / "client-token").read_text()


def test_a_rotation_must_be_finished_before_the_next(folder: Path, key_contents: list[str]) -> None:
    (folder / "session").write_text(f"{OLD} {OLD}2")

    with pytest.raises(FolderProblem, match="--finish"):
        KeyFiles(folder).rotate()
    assert key_contents == []
    assert (folder / "client-token").read_text() == OLD


def test_the_steps_of_a_rotation_can_run_separately(folder: Path, key_contents: list[str]) -> None:
    with pytest.raises(FolderProblem, match="--prepare"):
        KeyFiles(folder).switch()
    KeyFiles(folder).prepare()
    old, new = (folder / "session").read_text().split()
    assert old == OLD
    with pytest.raises(FolderProblem, match="--finish"):
        KeyFiles(folder).prepare()
    KeyFiles(folder).switch()
    assert (folder / "session").read_text().split() == [new, OLD]
    assert key_contents == []


@pytest.fixture
def readers(tmp_path: Path) -> Path:
    """A folder with two subfolders: both have the session's key, one has another key."""
    for path in ("gateway/session", "auth/session", "auth/client-token", "auth/audit_key", "auth/..hidden"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(OLD)
    return tmp_path


def test_all_readers_of_a_key_get_the_same_new_key(readers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.operator.key_files.sleep", lambda _: None)
    KeyFiles(readers).rotate()
    new, old = (readers / "gateway" / "session").read_text().split()
    assert old == OLD
    assert (readers / "auth" / "session").read_text().split() == [new, OLD]
    assert new not in (readers / "auth" / "client-token").read_text()
    assert (readers / "auth" / "audit_key").read_text() == (readers / "auth" / "..hidden").read_text() == OLD

    KeyFiles(readers).finish(keep_client_tokens=False)
    assert (readers / "gateway" / "session").read_text() == (readers / "auth" / "session").read_text() == new


@pytest.mark.parametrize("other", [f"{OLD}2", f"{OLD}\n{OLD}2"])
def test_a_key_that_differs_between_readers_is_not_rotated(readers: Path, other: str) -> None:
    (readers / "auth" / "session").write_text(other)
    with pytest.raises(FolderProblem, match="files of one name differ"):
        KeyFiles(readers)


@pytest.mark.parametrize("text", ["short", "", f"{OLD} {OLD} {OLD}", "some notes of the operator, with many words"])
def test_a_folder_with_other_files_is_not_changed(folder: Path, text: str) -> None:
    (folder / "session").write_text(text)

    with pytest.raises(FolderProblem) as problem:
        KeyFiles(folder)
    assert OLD not in str(problem.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderProblem, match="absent: No such file"):
        KeyFiles(tmp_path / "absent")
    with pytest.raises(FolderProblem, match="no key file"):
        KeyFiles(tmp_path)


@pytest.mark.usefixtures("key_contents")
def test_a_rotated_key_keeps_its_owner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed_owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: (folder / "session").stat().st_uid + 1)
    monkeypatch.setattr(os, "chown", lambda _, user, group: changed_owners.append((user, group)))
    KeyFiles(folder).rotate()

    status = (folder / "session").stat()
    assert status.st_mode & 0o777 == 0o600
    assert set(changed_owners) == {(status.st_uid, status.st_gid)}


def test_services_reload_keys_before_the_next_step() -> None:
    assert key_files.RELOADED > 2 * RELOAD_INTERVAL


def test_callers_outside_of_the_networks_are_named() -> None:
    callers = {"127.0.0.1", "10.1.2.3", "::ffff:10.9.9.9", "2001:db8::1", "pkgrepo"}
    assert locked_out(("10.0.0.0/8",), callers) == ["127.0.0.1", "2001:db8::1"]


def test_no_networks_exclude_nobody() -> None:
    assert locked_out((), {"127.0.0.1"}) == []
