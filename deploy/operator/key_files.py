"""Files that hold a key each, or two while one takes the other's place (`common.auth.signing`)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

from common.auth.signing import RELOAD_INTERVAL, parse_keys
from deploy.local.folder import FolderProblem, new_key, write_secret

HANDED_OUT = RELOAD_INTERVAL + 4  # seconds after which every service on this file system knows what a file holds
# At most, until the services that are handed a file by others have it; clocks that differ included.
KNOWN_WITHIN = timedelta(minutes=15)


class KeyFiles:
    """Every key file of a folder but the audit log's, whose entries are verified under the key of their time for ever.

    The files may stand in folders of it, one for each reader: those of one name hold the same key. Each method raises
    FolderProblem where one is no such file.
    """

    def __init__(self, folder: Path) -> None:
        try:
            files = [file for file in _files_below(folder) if _rotates(file)]
            self._keys = {file: parse_keys(file.read_text(encoding="utf-8")) for file in files}
        except OSError as error:
            raise FolderProblem(f"{error.filename}: {error.strerror}") from None
        except ValueError:
            raise FolderProblem(f"{folder}: holds a file that is not one key or two, each on a line") from None
        if not self._keys:
            raise FolderProblem(f"{folder}: there is no key file in it")
        if len({(file.name, words) for file, words in self._keys.items()}) > len({file.name for file in self._keys}):
            raise FolderProblem(f"{folder}: files of one name differ; copy one that holds two keys over the others")

    def rotate(self) -> list[Path]:
        """Put a new key before the one there is, in every file; the files.

        The new key is behind the old one first, until every service accepts it: whoever hears of a change late then
        still accepts what the others sign.
        """
        self.prepare()
        sleep(HANDED_OUT)
        return self.switch()

    def prepare(self) -> list[Path]:
        """Put a new key behind the one there is, in every file; the files."""
        for file in self._two():
            raise FolderProblem(f"{file}: holds two keys; end that rotation first, with --finish")
        new = {file.name: new_key() for file in self._keys}
        return self._write({file: (old, new[file.name]) for file, (old,) in self._keys.items()})

    def switch(self) -> list[Path]:
        """Let the other one sign, in every file that holds two keys; the files."""
        files = self._two()
        if not files:
            raise FolderProblem("no file holds two keys; put new ones behind those there are first, with --prepare")
        return self._write({file: self._keys[file][::-1] for file in files})

    def finish(self, *, keep_client_tokens: bool) -> list[Path]:
        """Keep the key that signs alone; the files that had another, but that of client tokens where it is to stay."""
        files = [file for file in self._two() if not (keep_client_tokens and _of_client_tokens(file))]
        return self._write({file: self._keys[file][:1] for file in files})

    def client_tokens_since(self) -> datetime | None:
        """When the key of client tokens was replaced everywhere, at the latest; None where no rotation is on."""
        times = [file.stat().st_mtime for file in self._two() if _of_client_tokens(file)]
        return datetime.fromtimestamp(max(times), UTC) + KNOWN_WITHIN if times else None

    def _two(self) -> list[Path]:
        return [file for file, words in self._keys.items() if len(words) > 1]

    def _write(self, keys: Mapping[Path, tuple[str, ...]]) -> list[Path]:
        for file, words in keys.items():
            write_secret(file, "\n".join(words))
            self._keys[file] = words
        return list(keys)


def _files_below(folder: Path) -> list[Path]:
    """The files of a folder and of the folders in it, without those that are hidden."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    inner = [path for one in found if one.is_dir() for path in sorted(one.iterdir()) if not path.name.startswith(".")]
    return [path for path in [*found, *inner] if path.is_file()]


def _rotates(file: Path) -> bool:
    return file.suffix != ".new" and not file.stem.lower().startswith("audit")


def _of_client_tokens(file: Path) -> bool:
    return file.stem.lower().replace("-", "_").startswith("client_token")
