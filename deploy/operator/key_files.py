"""Key files: each holds one key, or two during a rotation (`common.auth.signing`)."""

from collections.abc import Mapping
from pathlib import Path
from time import sleep

from common.auth.signing import RELOAD_INTERVAL, Keys, parse_keys
from deploy.local.folder import FolderProblem, new_key, write_secret

RELOADED = RELOAD_INTERVAL + 4  # seconds until every service on this file system has read a changed file


class KeyFiles:
    """The key files of a folder, without those of the audit log, whose old keys stay in use for verification.

    The files may be in subfolders, one for each service: files of one name hold the same key. Each method raises
    FolderProblem for an invalid file.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._keys = {file: parse_keys(file.read_text(encoding="utf-8")) for file in _rotated_files(folder)}
        except OSError as error:
            raise FolderProblem(f"{error.filename}: {error.strerror}") from None
        except ValueError:
            raise FolderProblem(f"{folder}: contains a file without one or two keys, each on a line") from None
        if not self._keys:
            raise FolderProblem(f"{folder}: contains no key file")
        if len({(file.name, words) for file, words in self._keys.items()}) > len({file.name for file in self._keys}):
            raise FolderProblem(f"{folder}: files of one name differ; copy one with two keys over the others")

    def rotate(self) -> list[Path]:
        """Make a new key the signing key, in every file; the files.

        The new key is added after the old one first, until every service accepts it. A service that reads the change
        late then accepts the signatures of the others.
        """
        self.prepare()
        sleep(RELOADED)
        return self.switch()

    def prepare(self) -> list[Path]:
        """Add a new key after the signing key, in every file; the files."""
        for file in self._with_two_keys():
            raise FolderProblem(f"{file}: holds two keys; finish that rotation first, with --finish")
        new = {file.name: new_key() for file in self._keys}
        return self._write({file: (old, new[file.name]) for file, (old,) in self._keys.items()})

    def switch(self) -> list[Path]:
        """Make the second key the signing key, in every file with two keys; the files."""
        files = self._with_two_keys()
        if not files:
            raise FolderProblem("no file holds two keys; add new keys first, with --prepare")
        return self._write({file: self._keys[file][::-1] for file in files})

    def finish(self, *, keep_client_tokens: bool) -> list[Path]:
        """Remove the old keys; the changed files. `keep_client_tokens` keeps the old key of client tokens."""
        files = [file for file in self._with_two_keys() if not (keep_client_tokens and _of_client_tokens(file))]
        return self._write({file: self._keys[file][:1] for file in files})

    def client_token_key(self) -> Keys | None:
        """The keys of client tokens while there are two, the new one first; None without a rotation."""
        words = [self._keys[file] for file in self._with_two_keys() if _of_client_tokens(file)]
        return Keys("\n".join(words[0])) if words else None

    def _with_two_keys(self) -> list[Path]:
        return [file for file, words in self._keys.items() if len(words) > 1]

    def _write(self, keys: Mapping[Path, tuple[str, ...]]) -> list[Path]:
        for file, words in keys.items():
            write_secret(file, "\n".join(words))
            self._keys[file] = words
        return list(keys)


def _rotated_files(folder: Path) -> list[Path]:
    """The key files of a folder and of its subfolders; hidden files and folders, and unfinished files, do not count."""
    paths = _visible(folder)
    for subfolder in [path for path in paths if path.is_dir()]:
        paths += _visible(subfolder)
    files = [path for path in paths if path.is_file()]
    return [file for file in files if file.suffix != ".new" and not file.stem.lower().startswith("audit")]


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _of_client_tokens(file: Path) -> bool:
    return file.stem.lower().replace("-", "_").startswith("client_token")
