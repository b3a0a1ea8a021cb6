"""How clients, the blacklist and releases look on the wire."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from client_registry.model import Client, Entry, Group, Release
from client_registry.releases.service import BEFORE_THE_FIRST
from client_registry.settings import RegistrySettings
from common.auth.callers import Caller
from common.auth.downloads import download_url


def client(found: Client) -> dict[str, Any]:
    return {
        "client_id": found.client_id,
        "client_name": found.name,
        "ip": found.ip,
        "last_seen": found.last_seen,
        "client": found.program,
        "enabled": found.enabled,
        "created_at": found.created_at,
        "token_hint": found.token_hint,
    }


def found_clients(found: Sequence[Client], total: int) -> dict[str, Any]:
    return {"clients": [client(one) for one in found], "total": total}


def entry(found: Entry) -> dict[str, Any]:
    return {
        "entry_id": found.entry_id,
        "client_id": found.client_id,
        "network": found.network,
        "package_ids": found.package_ids,
        "group_id": found.group_id,
        "created_at": found.created_at,
    }


def about_entry(
    *, client_id: str | None, network: str | None, package_ids: Sequence[str], group_id: str | None
) -> dict[str, str | Sequence[str]]:
    """What an entry says, for the audit log, by the names of its form; what it leaves open is left out."""
    said = {"client_id": client_id, "network": network, "package_ids": package_ids, "group": group_id}
    return {name: value for name, value in said.items() if value}


def group(found: Group) -> dict[str, Any]:
    return {
        "group_id": found.group_id,
        "name": found.name,
        "package_ids": found.package_ids,
        "created_at": found.created_at,
    }


def client_version(latest: Release | None, caller: Caller, settings: RegistrySettings, now: float) -> dict[str, str]:
    """The latest version and, where it has a file, its address and digest. `now` is in seconds since 1970."""
    if latest is None:
        return {"Version": BEFORE_THE_FIRST}
    if latest.installer is None:
        return {"Version": latest.version}
    suffix = PurePath(latest.installer.server_filename).suffix
    address = download_url(
        caller,
        settings.download_key,
        direct=settings.download_url,
        server_filename=latest.installer.server_filename,
        file_name=f"client-{latest.version}{suffix}",
        expires=int(now) + settings.download_lifetime,
    )
    return {"Version": latest.version, "INSTALLER_URL": address, "INSTALLER_SHA256": latest.installer.sha256}


def published(release: Release) -> dict[str, str]:
    answer = {"Message": "Client was published successfully!", "version": release.version}
    return {**answer, "sha256": release.installer.sha256} if release.installer else answer
