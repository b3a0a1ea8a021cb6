"""Files that hold a key each, or two while one takes the other's place (`common.signing`)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

from common.signing import NOTICED, words_of
from deploy.folder import FolderProblem, new_key, write_secret

HANDED_OUT = NOTICED + 4  # seconds after which every service on this file system knows what a file holds
CLOCKS_DIFFER = timedelta(minutes=1)  # at most, between who writes the file and who notes a client


class KeyFiles:
    """Every key file of a folder but the audit log's, whose entries are verified under the key of their time for ever.

    Each method raises FolderProblem where one is no such file.
    """

    def __init__(self, folder: Path) -> None:
        try:
            files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
            self._keys = {file: words_of(file.read_text(encoding="utf-8")) for file in files if _rotates(file)}
        except OSError as error:
            raise FolderProblem(f"{error.filename}: {error.strerror}") from None
        except ValueError:
            raise FolderProblem(f"{folder}: holds a file that is not one key or two, each on a line") from None
        if not self._keys:
            raise FolderProblem(f"{folder}: there is no key file in it")

    def rotate(self) -> list[Path]:
        """Put a new key before the one there is, in every file; the files.

        The new key is behind the old one first, until every service accepts it: whoever hears of a change late then
        still accepts what the others sign.
        """
        for file in self._two():
            raise FolderProblem(f"{file}: holds two keys; end that rotation first, with --finish")
        pairs = {file: (old, new_key()) for file, (old,) in self._keys.items()}
        self._write(pairs)
        sleep(HANDED_OUT)
        self._write({file: (new, old) for file, (old, new) in pairs.items()})
        return list(pairs)

    def finish(self, *, keep_client_tokens: bool) -> list[Path]:
        """Keep the key that signs alone; the files that had another, but that of client tokens where it is to stay."""
        files = [file for file in self._two() if not (keep_client_tokens and _of_client_tokens(file))]
        self._write({file: self._keys[file][:1] for file in files})
        return files

    def client_tokens_since(self) -> datetime | None:
        """When the key of client tokens was replaced, of late clocks the latest; None where no rotation is on."""
        for file in self._two():
            if _of_client_tokens(file):
                return datetime.fromtimestamp(file.stat().st_mtime, UTC) + CLOCKS_DIFFER
        return None

    def _two(self) -> list[Path]:
        return [file for file, words in self._keys.items() if len(words) > 1]

    def _write(self, keys: Mapping[Path, tuple[str, ...]]) -> None:
        for file, words in keys.items():
            write_secret(file, "\n".join(words))
            self._keys[file] = words


def _rotates(file: Path) -> bool:
    return file.suffix != ".new" and not file.stem.lower().startswith("audit")


def _of_client_tokens(file: Path) -> bool:
    return file.stem.lower().replace("-", "_").startswith("client_token")
