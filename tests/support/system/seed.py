"""A tenant with one object of each kind, and helpers for the table of operations."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from aiohttp import FormData
from yarl import URL

from common.auth.roles import FOR_TOKENS_ONLY, Role
from gateway.operations import OPERATIONS, Access, Operation, is_value
from tests.support.api import Answer
from tests.support.services.catalog import picture
from tests.support.system.publishing import (
    INSTALLER,
    add_package,
    publish,
    send_chunk,
    upload_listed,
    wait_for_inspection,
)
from tests.support.system.services import PASSWORD, Api, bearer

LONG_PASSWORD = "a password of a user"
CLIENTS = {Access.CLIENT, Access.PACKAGE_MANAGER}
READS = [
    row for row in OPERATIONS if row.access in CLIENTS or (row.access is Access.ADMINISTRATOR and row.method == "GET")
]
UNKNOWN = {
    "package_id": "Unknown.App",
    "version_uid": str(uuid4()),
    "client_id": str(uuid4()),
    "auth_token": str(uuid4()),
    "entry_id": str(uuid4()),
    "group_id": str(uuid4()),
    "username": "nobody",
    "token_id": "0123456789abcdef",
    "server_filename": f"{uuid4()}.exe",
    "file_name": "setup.exe",
    "asset": "docs.js",
}
# The view downloads the installer itself, which counts. Requests of an API token set its `last_used`.
_CHANGING = re.compile(r'\?expires=[0-9]+&signature=[0-9a-f]+|"downloads": [0-9]+, |"last_used": [^,}]+')


def title(row: Operation) -> str:
    return f"{row.method}-{row.path}"


def segments(row: Operation, parts: Mapping[str, str]) -> list[str]:
    """The decoded path segments of an operation with these values."""
    return [parts[part.strip("{}")] if is_value(part) else part for part in row.parts]


def as_winget(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request in winget's protocol, with the client's token in a header instead of a form."""
    form = request.get("data", {})
    if not isinstance(form, Mapping):
        return dict(request)  # Bytes are sent as they are.
    token = {"Windows-Package-Manager": f"{{'Token': '{form['auth_token']}'}}"} if "auth_token" in form else {}
    return {**request, "data": None, "json": {}, "headers": {**token, **request.get("headers", {})}}


def has_path_values(row: Operation) -> bool:
    return any(is_value(part) for part in row.parts)


@dataclass(frozen=True)
class SeedData:
    """The objects of a tenant.

    `parts` are their ids by the names of path parameters. `form` has a valid value for every field of the interface.
    `marker` is part of every text of the tenant. `enroller` has an API token for what users may not do.
    """

    api: Api
    enroller: Api
    marker: str
    parts: Mapping[str, str]
    form: Mapping[str, str]
    transfer: str
    link: str

    def caller_of(self, row: Operation) -> Api:
        """A caller who may use an operation."""
        headers = self.enroller.headers if row.permission in FOR_TOKENS_ONLY else self.api.headers
        return replace(self.api, headers=headers)  # `api` may be at another gateway.

    async def send(self, row: Operation, api: Api | None = None, **request: Any) -> Answer:
        """Call an operation with this tenant's objects, as `api` or as a caller who may do it."""
        request = as_winget(request) if row.is_winget else request
        if row.name == "search":
            request["params"] = {"text": "a", **request.get("params", {})}
        headers = {"X-File-ID": self.transfer, **request.pop("headers", {})}
        # Only a file without a version can be deleted.
        own = {"server_filename": self.form["server_filename"]} if row.name == "delete_upload" else {}
        path = segments(row, {**self.parts, **own})
        return await (api or self.caller_of(row)).call(row.method, *path, headers=headers, **request)

    async def view(self) -> dict[str, str]:
        """Everything that the tenant's administrator can read, without what every request changes."""
        view = {}
        for row in READS:
            if row.name in {"get_statistics", "get_audit_log"}:
                continue
            answer = await self.send(row, params={"include_disabled": "true"} if row.name == "get_packages" else {})
            assert answer.status == 200, (title(row), answer.status, answer.body)
            view[title(row)] = _CHANGING.sub("", json.dumps(answer.body, default=str))
        for package in (await self.api.call("POST", "get_packages", params={"include_disabled": "true"})).body:
            paths = [("get_package_details", package["PACKAGE_ID"])]
            paths += [("get_version_details", uid) for uid in package["VERSIONS_UID"]]
            for path in paths:
                view["/".join(path)] = json.dumps((await self.api.call("GET", *path)).body)
        async with self.api.session.get(URL(self.link, encoded=True)) as response:
            view["installer"] = hashlib.sha256(await response.read()).hexdigest()
        return view

    def leaked_values(self, answer: Answer, *sent: object) -> set[str]:
        """The values of this tenant that an answer contains and the request did not."""
        text = f"{answer.body} {dict(answer.headers)}"
        request = str(sent)
        secrets = {self.marker, *self.form.values(), *self.parts.values()} - {""}
        return {secret for secret in secrets if len(secret) > 8 and secret in text and secret not in request}


async def seed_tenant(api: Api, names: str = "") -> SeedData:
    """Create one object of each kind in a tenant. `names` is part of their names."""
    marker = names or f"own{uuid4().hex[:12]}"
    package = f"App.{marker}"
    local = json.dumps([{"package_locale": "de", "package_name": marker}])
    await add_package(api, package, package_publisher=marker, moniker=marker, tags=f"{marker},text", locales=local)
    logo = FormData()
    logo.add_field("Logo", picture(), filename="logo.png")
    assert (await api.call("PATCH", "edit_package", package, data=logo)).status == 200
    username = f"user-{marker}"
    await _create(api, "add_user", username=username, password=LONG_PASSWORD)
    publisher = await api.signed_in(username, LONG_PASSWORD)  # The administrator may approve the version.
    published = await publish(
        publisher, package, "1.0", channel=marker, release_notes=marker, platform="Windows.Desktop"
    )
    await publish(api, package, "0.9")  # winget sees only stable versions
    # A network of nobody: the addresses of installers stay here.
    site = {"name": marker[:64], "networks": ["192.0.2.0/24"], "downloads": "https://graz.example.com"}
    settings = {"rings": "pilot,everyone", "sites": json.dumps([site])}
    assert (await api.call("PATCH", "edit_settings", data=settings)).status == 200
    added = await _create(api, "add_client", client_name=f"pc-{marker}")
    client = {"client_id": added["client_id"], "auth_token": added["auth_token"]}
    hidden = {"package_ids": f"Hidden.{marker}", "allow_unknown": "1"}
    group = (await _create(api, "add_blacklist_group", name=marker, **hidden))["group_id"]
    free = (await _create(api, "add_blacklist_group", name=f"free-{marker}", **hidden))["group_id"]
    entry = (await _create(api, "add_blacklist_entry", network="192.0.2.1", group=group))["entry_id"]
    token_id = (await _create(api, "add_token", name=f"token-{marker}", role="viewer"))["token_id"]
    assert (await api.call("POST", "publish_client", data={"version": "0.0.0.1"})).status == 200
    transfer = f"transfer-{marker}"
    assert (await send_chunk(api, transfer, os.urandom(100), 0, 10)).status == 200
    pending = await upload_listed(api, os.urandom(50))
    version = (await api.call("GET", "get_specific_package_version", published.uid)).body
    link = str(version["INSTALLER_URL"])
    server_filename, file_name = URL(link).parts[-2:]
    await wait_for_inspection(api, server_filename)
    parts = {
        "package_id": package,
        "version_uid": published.uid,
        **client,
        "entry_id": entry,
        "group_id": free,
        "username": username,
        "token_id": token_id,
        "server_filename": server_filename,
        "file_name": file_name,
        "asset": "docs.js",
    }
    form = {
        **INSTALLER,
        **client,
        "package_id": f"{package}.New",
        "package_name": "Theirs",
        "package_publisher": "Theirs",
        "package_version": "2.0",
        "package_active": "0",
        "server_filename": pending,
        "versions_uids": published.uid,
        "allow_unknown": "1",
        "client_name": f"other-{marker}",
        "clients": f"client_name,ring\npc-2-{marker},everyone\n",
        "enabled": "0",
        "ring": "everyone",
        "reason": marker,
        "edited_at": "",
        "pinned": "1",
        "network": "192.0.2.2",
        "package_ids": package,
        "group": group,
        "name": f"new-{marker}",
        "version": "9.9.9.9",
        "username": username,
        "role": "viewer",
        "networks": "192.0.2.0/24",
        "expires_in_days": "30",
        "overlap_hours": "1",
        "password": LONG_PASSWORD,
        "old_password": PASSWORD,
        "new_password": "yet another password",
        "token": api.headers["Authorization"].removeprefix("Bearer "),
    }
    return SeedData(api, await add_enroller(api), marker, parts, form, transfer, link)


async def add_enroller(api: Api) -> Api:
    """A caller with an API token that enrolls machines."""
    created = await _create(api, "add_token", name="enroller", role=Role.ENROLLER)
    return replace(api, headers=bearer(created["token"]))


async def _create(api: Api, operation: str, **form: str) -> dict[str, str]:
    answer = await api.call("POST", operation, data=form)
    assert answer.status == 201, answer.body
    created: dict[str, str] = answer.body
    return created
