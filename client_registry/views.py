"""The response bodies of client_registry."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from client_registry.blacklist.model import Entry
from client_registry.clients.model import Client
from client_registry.releases.model import Release
from client_registry.releases.service import BEFORE_THE_FIRST
from client_registry.settings import RegistrySettings
from common.auth.downloads import download_url
from common.auth.internal_tokens import Caller


def client(client: Client) -> dict[str, Any]:
    values = dict(vars(client))
    return {"client_name": values.pop("name"), "client": values.pop("program"), **values}


def audit_changes(changes: Mapping[str, str | bool]) -> dict[str, str]:
    """The new values of a client, for the audit log."""
    return {name: value if isinstance(value, str) else str(int(value)) for name, value in changes.items()}


def audit_target(entry: Entry) -> dict[str, str | Sequence[str]]:
    """The given fields of an entry's form, for the audit log."""
    fields = {name: getattr(entry, name) for name in ("client_id", "network", "package_ids")}
    return {name: value for name, value in {**fields, "group": entry.group_id}.items() if value}


def client_version(latest: Release | None, caller: Caller, settings: RegistrySettings, now: float) -> dict[str, str]:
    """The latest version and, if it has a file, its address and digest. `now` is in seconds since 1970."""
    if latest is None:
        return {"Version": BEFORE_THE_FIRST}
    if latest.installer is None:
        return {"Version": latest.version}
    server_filename = latest.installer.server_filename
    address = download_url(
        caller,
        settings.download_key,
        direct=settings.download_url,
        server_filename=server_filename,
        file_name=f"client-{latest.version}{PurePath(server_filename).suffix}",
        expires=int(now) + settings.download_lifetime,
    )
    return {"Version": latest.version, "INSTALLER_URL": address, "INSTALLER_SHA256": latest.installer.sha256}


def published(release: Release) -> dict[str, str]:
    body = {"Message": "Client was published successfully!", "version": release.version}
    return {**body, "sha256": release.installer.sha256} if release.installer else body
