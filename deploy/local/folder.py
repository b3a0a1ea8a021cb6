"""The data folder of `pkgrepo up`: stores, installers, keys and sockets. Only its owner can read it."""

import json
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

SOCKET_PATH_LIMIT = 103  # bytes in the path of a unix socket on macOS; 107 on Linux
SERVICES = ("auth_service", "catalog_service", "upload_service", "client_registry")


class FolderProblem(Exception):
    """The folder cannot be used; the text is the reason in one line."""


@dataclass(frozen=True)
class Addresses:
    """The addresses of a running `up` and of its stores."""

    base_url: str
    mongo_url: str
    redis_url: str


class DataFolder:
    """The folder and the paths in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.installers = path / "installers"
        self.logs = path / "logs" / "pkgrepo.log"
        self.keys = path / "keys"
        self.password = path / "admin-password"  # of the first administrator, if it was generated
        self.certificates = path / "tls"
        self.ca_certificate = self.certificates / "ca.crt"  # Callers of `up --tls` trust it.
        self._addresses = path / "run" / "addresses.json"

    def prepare(self) -> None:
        """Create the folder if necessary. Raises FolderProblem."""
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
    def trust(self) -> ssl.SSLContext | bool:
        """The `ssl` option of a client of this `up`."""
        return ssl.create_default_context(cafile=self.ca_certificate) if self.ca_certificate.exists() else True

    def socket(self, service: str) -> Path:
        return self.path / "run" / f"{service}.sock"

    def key(self, name: str) -> Path:
        """The file of a key of the services; generated if it does not exist."""
        return generated_secret(self.keys / name)

    @property
    def audit_key(self) -> SecretStr:
        """The key of the audit log. It is not rotated, because old entries are verified with it."""
        return SecretStr(generated_secret(self.path / "audit-key").read_text(encoding="ascii"))

    def save_addresses(self, addresses: Addresses) -> None:
        """Store the addresses for other commands while `up` runs."""
        write_secret(self._addresses, json.dumps(vars(addresses)))

    def remove_addresses(self) -> None:
        self._addresses.unlink(missing_ok=True)

    def addresses(self) -> Addresses:
        """The addresses of a running `up`. Raises FolderProblem if none runs."""
        try:
            return Addresses(**json.loads(self._addresses.read_text(encoding="utf-8")))
        except FileNotFoundError:
            command = f"pkgrepo up --data {self.path}"
            raise FolderProblem(f"no `pkgrepo up` runs on {self.path}; start it with `{command}`") from None


def new_key() -> str:
    """A random key for a key file."""
    return secrets.token_urlsafe(48)


def generated_secret(file: Path, size: int = 48) -> Path:
    """The file of a secret; `size` random bytes are written to it if it does not exist."""
    if not file.exists():
        write_secret(file, secrets.token_urlsafe(size))
    return file


def write_secret(file: Path, text: str, owner: int | None = None) -> None:
    """Write a file that only its owner can read, atomically. Its owner is `owner`, or stays the same."""
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
