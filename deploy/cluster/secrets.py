"""The secrets of a deployment in containers: a folder for each container, which holds what that one may know.

keys/<service>/<name of the setting>   the keys of a service, as `pkgrepo keys rotate` replaces them
urls/<service>/<name of the setting>   where its stores are, with their passwords
mongodb/  redis/  rabbitmq/            what the stores themselves are told
administrator/password                 the first administrator's
grafana/password                       that of the dashboard's administrator, where it is asked for

A store that somebody else runs has its address in urls/, and nothing else here.
"""

import base64
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from auth_service.settings import AuthSettings
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from common.settings import EnvironmentSettings, MongoUrl, RabbitUrl, RedisUrl, ServiceSettings
from deploy.folder import new_key, write_secret
from gateway.settings import GatewaySettings
from upload_service.settings import UploadSettings

SETTINGS: Mapping[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "auth_service": AuthSettings,
    "catalog_service": CatalogSettings,
    "upload_service": UploadSettings,
    "client_registry": RegistrySettings,
}
# The one stands for the others where they are not given, and here they are; the other is what a storage gave out.
NOT_MADE = frozenset(["internal_key", "s3_secret_access_key"])
SERVICES_USER = 10001  # of our image
STORES_USER = 999  # of the images of MongoDB, Redis and RabbitMQ
READERS = {"mongodb": STORES_USER, "redis": STORES_USER, "rabbitmq": STORES_USER, "grafana": 472}  # else SERVICES_USER
USER = "pkgrepo"  # at the stores
_COMMAND = {"mongo_url": ["pkgrepo"], "redis_url": ["pkgrepo"]}  # read by the command beside the services


class OtherStores(EnvironmentSettings):
    """The addresses of stores that somebody else runs, with their users and passwords."""

    mongo_url: MongoUrl | None = None
    redis_url: RedisUrl | None = None
    rabbitmq_url: RabbitUrl | None = None


@dataclass(frozen=True)
class ClusterSecrets:
    """The folder of a deployment's secrets; what is there stays, but for the address of a store that is another now."""

    path: Path
    others: OtherStores = field(default_factory=OtherStores.model_construct)
    grafana: bool = False

    @property
    def administrator(self) -> Path:
        """The first administrator's password."""
        return self.path / "administrator" / "password"

    @property
    def mongodb_password(self) -> Path:
        return self.path / "mongodb" / "password"

    def make(self) -> list[Path]:
        """Generate what is not there yet; the new files. Who runs this as root gives each file to its reader."""
        made: list[Path] = []
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, url in self.others.model_dump(exclude_none=True).items():
            made += self._put(url, [file for file in self._urls(name) if _text(file) != url])
        for text, files in self._wanted():
            there = [file for file in files if file.exists()]
            words = there[0].read_text(encoding="ascii") if there else text
            made += self._put(words, [file for file in files if file not in there])
        return made

    def _put(self, text: str, files: list[Path]) -> list[Path]:
        for file in files:
            self._write(file, text)
        return files

    def _wanted(self) -> list[tuple[str, list[Path]]]:
        """Each secret, newly made, and the files that it belongs in."""
        names = sorted({name for settings in SETTINGS.values() for name in _keys_of(settings)})
        keys = [(new_key(), [self._key(service, name) for service in _having(name)]) for name in names]
        ours = {"mongo_url": self._of_mongodb, "redis_url": self._of_redis, "rabbitmq_url": self._of_rabbitmq}
        stores = [secret for name, of in ours.items() if getattr(self.others, name) is None for secret in of()]
        people = [self.administrator, *([self.path / "grafana" / "password"] if self.grafana else [])]
        return [*((secrets.token_urlsafe(18), [file]) for file in people), *keys, *stores]

    def _key(self, service: str, name: str) -> Path:
        return self.path / "keys" / service / name

    def _urls(self, name: str) -> list[Path]:
        return [self.path / "urls" / reader / name for reader in [*_having(name), *_COMMAND.get(name, [])]]

    def _of_mongodb(self) -> list[tuple[str, list[Path]]]:
        password = _kept(self.mongodb_password)
        members = base64.b64encode(secrets.token_bytes(96)).decode()
        url = f"mongodb://{USER}:{password}@mongodb:27017/?replicaSet=rs0&authSource=admin"
        return [
            (password, [self.mongodb_password]),
            (members, [self.path / "mongodb" / "members"]),
            (url, self._urls("mongo_url")),
        ]

    def _of_redis(self) -> list[tuple[str, list[Path]]]:
        file = self.path / "redis" / "password"
        password = _kept(file)
        url = f"redis://:{password}@redis:6379"
        return [
            (password, [file]),
            (f"requirepass {password}\n", [file.with_name("password.conf")]),
            (url, self._urls("redis_url")),
        ]

    def _of_rabbitmq(self) -> list[tuple[str, list[Path]]]:
        file = self.path / "rabbitmq" / "password"
        password = _kept(file)
        conf = f"default_user = {USER}\ndefault_pass = {password}\n"
        return [
            (password, [file]),
            (conf, [file.with_name("user.conf")]),
            (f"amqp://{USER}:{password}@rabbitmq:5672/", self._urls("rabbitmq_url")),
        ]

    def _write(self, file: Path, text: str) -> None:
        owner = READERS.get(file.relative_to(self.path).parts[0], SERVICES_USER)
        self._open(file.parent, owner)
        write_secret(file, text)
        _give(file, owner)

    @staticmethod
    def _open(folder: Path, owner: int) -> None:
        """A folder that its owner alone may enter; an engine that was told to mount it may have made it already."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        _give(folder, owner)


def _give(path: Path, owner: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, owner, owner)


def _keys_of(settings: type[ServiceSettings]) -> list[str]:
    return [name for name in settings.model_fields if name.endswith("_key") and name not in NOT_MADE]


def _having(name: str) -> list[str]:
    """The services that have such a setting."""
    return [service for service, settings in SETTINGS.items() if name in settings.model_fields]


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def _kept(file: Path) -> str:
    """A password: the one of the file, or a new one."""
    return file.read_text(encoding="ascii") if file.exists() else secrets.token_urlsafe(24)
