"""The secrets of a deployment in containers: a folder for each container, with the files that it reads.

keys/<service>/<name of the setting>   the keys of a service, as `pkgrepo keys rotate` replaces them
urls/<service>/<name of the setting>   the addresses of its stores, with its name and password there
mongodb/  redis/  rabbitmq/            the users of the stores of `compose.yaml`: a file `name:password` for each
administrator/password                 the first administrator's
grafana/password                       the dashboard administrator's, where Grafana runs

A file of a store may hold two users with a space between them: the services have the first, the store accepts both.
A store that somebody else runs has its addresses in urls/, and nothing else here.
"""

import base64
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from auth_service.settings import AuthSettings
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from common.settings import BadSetting, ServiceSettings
from deploy.cluster.rights import (
    ADMINISTRATOR,
    HEALTH,
    OPERATOR,
    Credential,
    names_of,
    rabbitmq_definitions,
    redis_acl,
)
from deploy.cluster.stores import OUTDATED, STORES, OtherStores, Store
from deploy.local.folder import new_key, write_secret
from deploy.operator.stores import StoreSettings
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
COMMAND = "pkgrepo"  # the folder of the addresses that the operator's commands read


@dataclass(frozen=True)
class ClusterSecrets:
    """The folder of a deployment's secrets.

    `others` has addresses of stores that somebody else runs, one for all readers; `external` says that somebody else
    runs all stores and that each reader's address is in its file already.
    """

    path: Path
    others: OtherStores = field(default_factory=OtherStores.model_construct)
    grafana: bool = False
    external: bool = False

    @property
    def administrator(self) -> Path:
        """The first administrator's password."""
        return self.path / "administrator" / "password"

    @property
    def _root(self) -> Path:
        """The passwords of MongoDB's root: the one that it has or gets, then earlier ones."""
        return self.path / "mongodb" / "password"

    def root_passwords(self) -> list[str]:
        """The passwords of MongoDB's root, the one that it has or gets before earlier ones."""
        return self._root.read_text(encoding="ascii").split()

    def make(self) -> list[Path]:
        """Generate what is missing and bring the files of the stores up to date; the files that were written.

        Root gives each file to its reader. Raises BadSetting where an address is missing.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        written: list[Path] = []
        for name, url in self.others.model_dump(exclude_none=True).items():
            written += self._update(dict.fromkeys(self._urls(name).values(), url))
        if self.external:
            self._check_addresses()
        for text, files in self._generated():
            existing = [file for file in files if file.exists()]
            value = existing[0].read_text(encoding="ascii") if existing else text
            written += self._update({file: value for file in files if file not in existing})
        for store in self._stores():
            written += self._update(self._derived(store))
        outdated = [file for file in (self.path / name for name in OUTDATED) if file.exists()]
        if outdated and self._root.exists():  # Every service of that release had root's password.
            written += self._renew_root()
        for file in outdated:
            file.unlink()
        return written

    def credentials(self, store: str) -> list[Credential]:
        """The users that a store accepts, by the name of its folder."""
        [found] = [known for known in STORES if known.folder == store]
        return [credential for user in found.users for credential in self._credentials(store, user)]

    def renew_passwords(self) -> None:
        """Give each user a second name and password, which comes first. A user that has two keeps both.

        MongoDB's root gets another password. Raises BadSetting where the folder has no users of stores.
        """
        users = self._renewable()
        is_first_run = all(len(self._credentials(store.folder, user)) == 1 for store, user in users)
        if is_first_run and self._root.exists():
            self._renew_root()
        for store, user in users:
            known = self._credentials(store.folder, user)
            if len(known) == 1:
                [name] = set(names_of(user)) - {known[0].name}
                self._put(store, user, [Credential(user, name, _password()), *known])

    def drop_old_passwords(self) -> None:
        """Leave each user its first name and password. Raises BadSetting where the folder has no users of stores.

        The earlier passwords of MongoDB's root stay: if the server still has one, only that one gives it the new one.
        """
        for store, user in self._renewable():
            self._put(store, user, self._credentials(store.folder, user)[:1])

    def _renewable(self) -> list[tuple[Store, str]]:
        users = [(store, user) for store in STORES if (self.path / store.folder).is_dir() for user in store.users]
        if not users:
            raise BadSetting(f"{self.path}: has no users of the stores of the compose file")
        return [(store, user) for store, user in users if user not in {HEALTH, ADMINISTRATOR}]

    def _renew_root(self) -> list[Path]:
        return self._update({self._root: " ".join([_password(), *self.root_passwords()])})

    def _stores(self) -> list[Store]:
        """The stores whose users are kept here."""
        return [store for store in STORES if not self.external and getattr(self.others, store.setting) is None]

    def _generated(self) -> list[tuple[str, list[Path]]]:
        """Each secret that is drawn at random, and the files that it belongs in."""
        names = sorted({name for settings in SETTINGS.values() for name in _keys_of(settings)})
        keys = [(new_key(), [self._key(service, name) for service in _having(name)]) for name in names]
        people = [self.administrator, *([self.path / "grafana" / "password"] if self.grafana else [])]
        users = [(store.folder, user) for store in self._stores() for user in store.users]
        stores = [(str(Credential(user, user, _password())), [self.path / store / user]) for store, user in users]
        if any(store.folder == "mongodb" for store in self._stores()):
            members = base64.b64encode(secrets.token_bytes(96)).decode()
            stores += [(_password(), [self._root]), (members, [self.path / "mongodb" / "members"])]
        return [*((secrets.token_urlsafe(18), [file]) for file in people), *keys, *stores]

    def _derived(self, store: Store) -> dict[Path, str]:
        """The files that follow from the users of a store. An address of another store stays."""
        files = {
            file: store.url.format(self._credentials(store.folder, user)[0])
            for user, file in self._urls(store.setting).items()
            if not file.exists() or store.is_here(file.read_text(encoding="utf-8"))
        }
        if store.folder == "redis":
            files[self.path / "redis" / "users.acl"] = redis_acl(self.credentials("redis"))
        if store.folder == "rabbitmq":
            files[self.path / "rabbitmq" / "definitions.json"] = rabbitmq_definitions(self.credentials("rabbitmq"))
        return files

    def _credentials(self, store: str, user: str) -> list[Credential]:
        pairs = [pair.partition(":") for pair in (self.path / store / user).read_text(encoding="ascii").split()]
        return [Credential(user, name, password) for name, _, password in pairs]

    def _put(self, store: Store, user: str, credentials: Sequence[Credential]) -> None:
        self._update({self.path / store.folder / user: " ".join(map(str, credentials))})
        self._update(self._derived(store))

    def _check_addresses(self) -> None:
        for store in STORES:
            for file in self._urls(store.setting).values():
                if not file.exists():
                    raise BadSetting(f"{file}: is missing; it holds the address of the store, with a user of its own")

    def _key(self, service: str, name: str) -> Path:
        return self.path / "keys" / service / name

    def _urls(self, name: str) -> dict[str, Path]:
        """The files with a store's address, by the user that it names."""
        readers = {service: service for service in _having(name)}
        if name in StoreSettings.model_fields:
            readers[OPERATOR] = COMMAND
        return {user: self.path / "urls" / reader / name for user, reader in readers.items()}

    def _update(self, texts: Mapping[Path, str]) -> list[Path]:
        """Write the files that do not have their text; those that were written."""
        changed = [file for file, text in texts.items() if _text(file) != text]
        for file in changed:
            owner = READERS.get(file.relative_to(self.path).parts[0], SERVICES_USER)
            self._open(file.parent, owner)
            write_secret(file, texts[file], owner if os.geteuid() == 0 else None)
        return changed

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


def _password() -> str:
    return secrets.token_urlsafe(24)
