"""The secrets of a deployment in containers: a folder of files for each container.

keys/<service>/<name of the setting>   the keys of a service; `pkgrepo keys rotate` replaces them
urls/<service>/<name of the setting>   the addresses of its stores, with its name and password
mongodb/  redis/  rabbitmq/            the users of the stores of `compose.yaml`: a file `name:password` for each
administrator/password                 the first administrator's password
grafana/password                       the password of the dashboard's administrator, if Grafana runs

A file of a store may hold two users, separated by a space: the services use the first, the store accepts both.
An external store has its addresses in urls/, and nothing else here.
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
from deploy.cluster.rights import ADMINISTRATOR, HEALTH, OPERATOR, STORES, Credential, OtherStores, Store, names_of
from deploy.local.folder import new_key, write_secret
from deploy.operator.stores import StoreSettings
from gateway.settings import GatewaySettings
from upload_service.settings import UploadSettings

ROOT = 0
SERVICES_USER = 10001  # of our image
STORES_USER = 999  # of the images of MongoDB, Redis and RabbitMQ
# The folders of secrets of other owners than SERVICES_USER.
OWNERS = {"mongodb": STORES_USER, "redis": STORES_USER, "rabbitmq": STORES_USER, "grafana": 472}
SETTINGS: Mapping[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "auth_service": AuthSettings,
    "catalog_service": CatalogSettings,
    "upload_service": UploadSettings,
    "client_registry": RegistrySettings,
}
# `internal_key` is the default of other keys that are all given here; the storage's provider issues the S3 key.
NOT_GENERATED = frozenset(["internal_key", "s3_secret_access_key"])
COMMAND = "pkgrepo"  # the folder of the addresses for the operator's commands


def prepare_backup_folder(path: Path) -> None:
    """Create the folder of backups; give an empty folder of root to the services' user. Raises OSError.

    A container engine creates a missing folder as root. Any other folder stays as it is.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.stat().st_uid == ROOT and not any(path.iterdir()):
        path.chmod(0o700)
        os.chown(path, SERVICES_USER, SERVICES_USER)


@dataclass(frozen=True)
class ClusterSecrets:
    """The folder of a deployment's secrets.

    `others` has one address of each external store, for all services. `external` says that all stores are external,
    and that each service's address is in its file already.
    """

    path: Path
    others: OtherStores = field(default_factory=OtherStores.model_construct)
    grafana: bool = False
    external: bool = False

    @property
    def _root(self) -> Path:
        return self.path / "mongodb" / "password"

    def root_passwords(self) -> list[str]:
        """The passwords of MongoDB's root: the current or next one, then earlier ones."""
        return self._root.read_text(encoding="ascii").split()

    def generate(self) -> list[Path]:
        """Generate missing secrets and update the files of the stores; the written files.

        As root, it gives each file to its reader. Raises BadSetting with all missing addresses.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        written: list[Path] = []
        for name, url in self.others.model_dump(exclude_none=True).items():
            written += self._update(dict.fromkeys(self._urls(name).values(), url))
        addresses = [file for store in STORES for file in self._urls(store.setting).values()]
        missing = [file for file in addresses if not file.exists()] if self.external else []
        if missing:
            names = ", ".join(file.relative_to(self.path).as_posix() for file in missing)
            raise BadSetting(
                f"{self.path}: missing files: {names}; write to each the store's address, with a user for that service"
            )
        for text, files in self._random_secrets():
            existing = [file for file in files if file.exists()]
            value = existing[0].read_text(encoding="ascii") if existing else text
            written += self._update({file: value for file in files if file not in existing})
        for store in self._own_stores():
            written += self._update(self._derived(store))
        return written

    def credentials(self, store: str) -> list[Credential]:
        """The users that a store accepts; `store` is the name of its folder."""
        [users] = [known.users for known in STORES if known.folder == store]
        return [credential for user in users for credential in self._credentials(store, user)]

    def renew_passwords(self) -> None:
        """Give each user a second name and password, which comes first. A user that has two keeps both.

        MongoDB's root gets a new password. Raises BadSetting if the folder has no users of stores.
        """
        users = self._renewable()
        is_first_run = all(len(self._credentials(store.folder, user)) == 1 for store, user in users)
        if is_first_run and self._root.exists():
            self._renew_root()
        for store, user in users:
            known = self._credentials(store.folder, user)
            if len(known) == 1:
                [name] = set(names_of(user)) - {known[0].name}
                self._set(store, user, [Credential(user, name, _password()), *known])

    def drop_old_passwords(self) -> None:
        """Leave each user its first name and password. Raises BadSetting if the folder has no users of stores.

        The earlier passwords of MongoDB's root stay: the server may still have one, and needs it for the change.
        """
        for store, user in self._renewable():
            self._set(store, user, self._credentials(store.folder, user)[:1])

    def _renewable(self) -> list[tuple[Store, str]]:
        users = [(store, user) for store in STORES if (self.path / store.folder).is_dir() for user in store.users]
        if not users:
            raise BadSetting(f"{self.path}: has no users of the stores of the compose file")
        return [(store, user) for store, user in users if user not in {HEALTH, ADMINISTRATOR}]

    def _renew_root(self) -> list[Path]:
        return self._update({self._root: " ".join([_password(), *self.root_passwords()])})

    def _own_stores(self) -> list[Store]:
        return [store for store in STORES if not self.external and getattr(self.others, store.setting) is None]

    def _random_secrets(self) -> list[tuple[str, list[Path]]]:
        """A new value of each random secret, and the files that have it."""
        names = sorted({name for settings in SETTINGS.values() for name in settings.model_fields})
        keys = [name for name in names if name.endswith("_key") and name not in NOT_GENERATED]
        people = ["administrator", *(["grafana"] if self.grafana else [])]
        result = [(secrets.token_urlsafe(18), [self.path / person / "password"]) for person in people]
        result += [(new_key(), [self.path / "keys" / service / key for service in _services_with(key)]) for key in keys]
        for store in self._own_stores():
            folder = self.path / store.folder
            result += [(str(Credential(user, user, _password())), [folder / user]) for user in store.users]
            if store.folder == "mongodb":
                result.append((_password(), [self._root]))
                result.append((base64.b64encode(secrets.token_bytes(96)).decode(), [folder / "members"]))
        return result

    def _derived(self, store: Store) -> dict[Path, str]:
        """The files that follow from the users of a store. An address of an external store stays."""
        files = {
            file: store.url.format(self._credentials(store.folder, user)[0])
            for user, file in self._urls(store.setting).items()
            if not file.exists() or store.has_address(file.read_text(encoding="utf-8"))
        }
        for name, text_of in store.user_files.items():
            files[self.path / store.folder / name] = text_of(self.credentials(store.folder))
        return files

    def _credentials(self, store: str, user: str) -> list[Credential]:
        pairs = [pair.partition(":") for pair in (self.path / store / user).read_text(encoding="ascii").split()]
        return [Credential(user, name, password) for name, _, password in pairs]

    def _set(self, store: Store, user: str, credentials: Sequence[Credential]) -> None:
        self._update({self.path / store.folder / user: " ".join(map(str, credentials))})
        self._update(self._derived(store))

    def _urls(self, name: str) -> dict[str, Path]:
        """The files with a store's address, by the user in the address."""
        readers = {service: service for service in _services_with(name)}
        if name in StoreSettings.model_fields:
            readers[OPERATOR] = COMMAND
        return {user: self.path / "urls" / reader / name for user, reader in readers.items()}

    def _update(self, texts: Mapping[Path, str]) -> list[Path]:
        """Write the files whose text differs; the written files."""
        changed = [file for file, text in texts.items() if not file.exists() or file.read_text("utf-8") != text]
        for file in changed:
            # A container engine may have created the folder as a mount point.
            file.parent.mkdir(parents=True, exist_ok=True)
            file.parent.chmod(0o700)
            owner = OWNERS.get(file.relative_to(self.path).parts[0], SERVICES_USER) if os.geteuid() == ROOT else None
            if owner is not None:
                os.chown(file.parent, owner, owner)
            write_secret(file, texts[file], owner)
        return changed


def _services_with(setting: str) -> list[str]:
    return [service for service, settings in SETTINGS.items() if setting in settings.model_fields]


def _password() -> str:
    return secrets.token_urlsafe(24)
