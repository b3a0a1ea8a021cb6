"""A tenant that has one of everything, and the table of the interface as tests walk it."""

import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from aiohttp import FormData
from yarl import URL

from gateway.operations import OPERATIONS, Access, Operation, is_value
from tests.support.api import Answer
from tests.support.services.catalog import picture
from tests.support.wait import until
from tests.support.whole.publishing import INSTALLER, add_package, publish, send_chunk, upload
from tests.support.whole.services import PASSWORD, Api

LONG_PASSWORD = "a password of theirs"
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
    "server_filename": f"{uuid4()}.exe",
    "file_name": "setup.exe",
    "asset": "docs.js",
}
_SIGNATURE = re.compile(r"\?expires=[0-9]+&signature=[0-9a-f]+")


def title(row: Operation) -> str:
    return f"{row.method}-{row.path}"


def segments(row: Operation, parts: Mapping[str, str]) -> list[str]:
    """The decoded path of an operation with these values."""
    return [parts[part.strip("{}")] if is_value(part) else part for part in row.parts]


def as_winget(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same request in winget's protocol: a client's token stands in a header, and there is no form."""
    form = request.get("data", {})
    if not isinstance(form, Mapping):
        return dict(request)  # Bytes are sent as they are.
    token = {"Windows-Package-Manager": f"{{'Token': '{form['auth_token']}'}}"} if "auth_token" in form else {}
    return {**request, "data": None, "json": {}, "headers": {**token, **request.get("headers", {})}}


def has_path_values(row: Operation) -> bool:
    return any(is_value(part) for part in row.parts)


@dataclass(frozen=True)
class SeedData:
    """What a tenant has.

    `parts` are its things by the names of the table's path parts; `form` has a good value for every field that the
    interface knows, so that it makes sense to any operation; `marker` stands in every text of the tenant's own.
    """

    api: Api
    marker: str
    parts: Mapping[str, str]
    form: Mapping[str, str]
    transfer: str
    link: str
    last_view: dict[str, str] = field(default_factory=dict, compare=False)  # what `unharmed` saw last

    async def send(self, row: Operation, api: Api | None = None, **request: Any) -> Answer:
        """Call an operation with what this tenant has, at this tenant or as `api` would."""
        request = as_winget(request) if row.is_winget else request
        headers = {"X-File-ID": self.transfer, **request.pop("headers", {})}
        return await (api or self.api).call(row.method, *segments(row, self.parts), headers=headers, **request)

    async def view(self) -> dict[str, str]:
        """Everything that the tenant's administrator can read."""
        seen = {}
        for row in READS:
            answer = await self.send(row, params={"include_disabled": "true"} if row.name == "get_packages" else {})
            assert answer.status == 200, (title(row), answer.status, answer.body)
            seen[title(row)] = _SIGNATURE.sub("", json.dumps(answer.body, default=str))
        for package in (await self.api.call("POST", "get_packages", params={"include_disabled": "true"})).body:
            things = [("get_package_details", package["PACKAGE_ID"])]
            things += [("get_version_details", uid) for uid in package["VERSIONS_UID"]]
            for path in things:
                seen["/".join(path)] = json.dumps((await self.api.call("GET", *path)).body)
        async with self.api.session.get(URL(self.link, encoded=True)) as response:
            seen["installer"] = hashlib.sha256(await response.read()).hexdigest()
        return seen

    async def view_without_audit(self) -> dict[str, str]:
        """The same without the audit log, in which a refused write is an entry."""
        seen = await self.view()
        del seen["GET-get_audit_log"]
        return seen

    @asynccontextmanager
    async def assert_unchanged(self, *, log: bool = True) -> AsyncIterator[None]:
        """Whatever happens within, the tenant shows the same afterwards as when one looked last.

        Without `log` the audit log aside, in which a refused write is an entry.
        """
        look = self.view if log else self.view_without_audit
        before = dict(self.last_view) or await look()
        yield
        after = await look()
        self.last_view.clear()
        self.last_view.update(after)
        assert after == before

    def leaked_values(self, answer: Answer, *sent: object) -> set[str]:
        """What an answer tells of this tenant that the request did not say itself."""
        told = f"{answer.body} {dict(answer.headers)}"
        request = str(sent)
        secrets = {self.marker, *self.form.values(), *self.parts.values()} - {""}
        return {secret for secret in secrets if len(secret) > 8 and secret in told and secret not in request}

    def via(self, api: Api) -> "SeedData":
        """The same tenant as another gateway shows it."""
        link = self.link.replace(self.api.base_url, api.base_url)
        return replace(self, api=replace(api, headers=self.api.headers), link=link, last_view={})


async def seed_tenant(api: Api, names: str = "") -> SeedData:
    """Give a tenant one of everything; `names` is what its own names are made of."""
    marker = names or f"own{uuid4().hex[:12]}"
    package = f"App.{marker}"
    local = json.dumps([{"package_locale": "de", "package_name": marker}])
    await add_package(api, package, package_publisher=marker, moniker=marker, tags=f"{marker},text", locales=local)
    logo = FormData()
    logo.add_field("Logo", picture(), filename="logo.png")
    assert (await api.call("PATCH", "edit_package", package, data=logo)).status == 200
    published = await publish(api, package, "1.0", channel=marker, release_notes=marker, platform="Windows.Desktop")
    await publish(api, package, "0.9")  # winget is shown stable ones only
    username = f"user-{marker}"
    added = await _create(api, "add_client", client_name=f"pc-{marker}")
    client = {"client_id": added["client_id"], "auth_token": added["auth_token"]}
    group = (await _create(api, "add_blacklist_group", name=marker, package_ids=f"Hidden.{marker}"))["group_id"]
    free = (await _create(api, "add_blacklist_group", name=f"free-{marker}", package_ids="Other.App"))["group_id"]
    entry = (await _create(api, "add_blacklist_entry", network="192.0.2.1", group=group))["entry_id"]
    await _create(api, "add_user", username=username, password=LONG_PASSWORD)
    assert (await api.call("POST", "publish_client", data={"version": "0.0.0.1"})).status == 200
    transfer = f"transfer-{marker}"
    assert (await send_chunk(api, transfer, os.urandom(100), 0, 10)).status == 200
    waiting = await _waiting_upload(api)
    version = (await api.call("GET", "get_specific_package_version", published.uid)).body
    link = str(version["INSTALLER_URL"])
    server_filename, file_name = URL(link).parts[-2:]
    await _wait_for_inspection(api, server_filename)
    parts = {
        "package_id": package,
        "version_uid": published.uid,
        **client,
        "entry_id": entry,
        "group_id": free,
        "username": username,
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
        "server_filename": waiting,
        "versions_uids": published.uid,
        "client_name": f"other-{marker}",
        "enabled": "0",
        "network": "192.0.2.2",
        "package_ids": package,
        "group": group,
        "name": f"new-{marker}",
        "version": "9.9.9.9",
        "username": username,
        "password": LONG_PASSWORD,
        "old_password": PASSWORD,
        "new_password": "yet another password",
        "token": api.headers["Authorization"].removeprefix("Bearer "),
    }
    return SeedData(api, marker, parts, form, transfer, link)


async def _create(api: Api, operation: str, **form: str) -> dict[str, str]:
    answer = await api.call("POST", operation, data=form)
    assert answer.status == 201, answer.body
    made: dict[str, str] = answer.body
    return made


async def _waiting_upload(api: Api) -> str:
    """A finished upload that no version has, once the catalog has heard of it."""
    waiting = await upload(api, os.urandom(50))

    async def listed() -> bool:
        rows = (await api.call("GET", "get_finished_uploads")).body
        return [row["server_filename"] for row in rows] == [waiting]

    await until(listed)
    return waiting


async def _wait_for_inspection(api: Api, server_filename: str) -> None:
    """Wait for the end of a file's inspection, since what is shown of the file changes with it."""

    async def ended() -> bool:
        state: str = (await api.call("GET", "inspect_upload", server_filename)).body["state"]
        return state != "waiting"

    await until(ended)
