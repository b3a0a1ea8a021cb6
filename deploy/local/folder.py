"""The data folder of `pkgrepo up`: stores, installers, keys and sockets, readable by its owner alone."""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

SOCKET_PATH_LIMIT = 103  # bytes in the path of a unix socket on macOS; Linux takes 107
SERVICES = ("auth_service", "catalog_service", "upload_service", "client_registry")


class FolderProblem(Exception):
    """The folder cannot be used; the text says why, in one line."""


@dataclass(frozen=True)
class Addresses:
    """Where the stores of a running `up` listen, and where it answers."""

    base_url: str
    mongo_url: str
    redis_url: str


@dataclass(frozen=True)
class DataFolder:
    """One folder that holds everything."""

    path: Path

    def prepare(self) -> None:
        """Make the folder where it is not there. Raises FolderProblem."""
        for folder in (self.path, self.path / "run", self.keys, self.installers, self.logs.parent):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            except OSError as error:
                raise FolderProblem(f"{folder}: {error.strerror}") from None
        longest = max(len(os.fsencode(self.socket(name))) for name in SERVICES)
        if longest > SOCKET_PATH_LIMIT:
            raise FolderProblem(f"{self.path}: the path is too long for sockets in it; choose a shorter one")

    @property
    def installers(self) -> Path:
        return self.path / "installers"

    @property
    def logs(self) -> Path:
        return self.path / "logs" / "pkgrepo.log"

    @property
    def password(self) -> Path:
        """The first administrator's password, as it was generated."""
        return self.path / "admin-password"

    def socket(self, service: str) -> Path:
        return self.path / "run" / f"{service}.sock"

    @property
    def keys(self) -> Path:
        return self.path / "keys"

    def key(self, name: str) -> Path:
        """The file of a key of this folder's services, generated where there is none yet."""
        file = self.keys / name
        if not file.exists():
            write_secret(file, new_key())
        return file

    @property
    def audit_key(self) -> SecretStr:
        """The key of the audit log, not among those that are replaced: an entry is verified under it for ever."""
        file = self.path / "audit-key"
        if not file.exists():
            write_secret(file, secrets.token_urlsafe(48))
        return SecretStr(file.read_text(encoding="ascii"))

    def remember(self, addresses: Addresses) -> None:
        """Tell the commands that run beside."""
        write_secret(self._addresses, json.dumps(vars(addresses)))

    def forget(self) -> None:
        self._addresses.unlink(missing_ok=True)

    def addresses(self) -> Addresses:
        """Where a running `up` has its stores. Raises FolderProblem where none runs."""
        try:
            return Addresses(**json.loads(self._addresses.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise FolderProblem(f"nothing runs on {self.path}; start it with `pkgrepo up --data {self.path}`") from None

    @property
    def _addresses(self) -> Path:
        return self.path / "run" / "addresses.json"


def new_key() -> str:
    """A key for a file of keys."""
    return secrets.token_urlsafe(48)


def write_secret(file: Path, text: str, owner: int | None = None) -> None:
    """Write a file that nobody else may read, at once or not at all; its owner is `owner`, or stays who it was."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        if owner is not None:
            os.chown(opened.fileno(), owner, owner)
        elif file.exists() and file.stat().st_uid != os.geteuid():
            os.chown(opened.fileno(), file.stat().st_uid, file.stat().st_gid)
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
