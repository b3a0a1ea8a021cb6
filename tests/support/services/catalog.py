"""A running catalog_service, with a stub of the other services."""

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession, web
from PIL import Image
from yarl import URL

from catalog_service.app import create_app
from catalog_service.app_keys import CATALOG_CACHE, PACKAGES, RELEASES, RETENTION, STORE, VERSIONS
from catalog_service.catalog.cache import CatalogCache
from catalog_service.packages.service import Packages
from catalog_service.releases.service import Releases
from catalog_service.settings import CatalogSettings
from catalog_service.store import MongoCatalogStore
from catalog_service.versions.service import Versions
from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from common.auth.roles import Permission, PermissionMissing
from common.errors import NotFound, Problem
from common.events import Events, LocalEvents
from common.http.middleware import json_response, problems
from common.http.server import serving
from common.mongo import Document, MongoDatabase, open_database
from common.service_client.client import HEADER_LIMIT
from tests.support.api import Answer, ServiceApi, read_answer
from tests.support.databases import own_database
from tests.support.factories import KEY, KEYS

DIGEST = "ab" * 32
RELEASE_OPERATIONS = {"installer_checks", "withhold_installers", "infected_installers", "record_audit"}
# The fields of an external installer.
EXTERNAL = {"installer_url": "https://downloads.example.com/editor.msi?build=7", "installer_sha256": "cd" * 32}
EMPTY_INSPECTION: dict[str, Any] = {
    "state": "done",
    "reason": "",
    "file_type": "",
    "file_architect": "",
    "file_scope": "",
    "package_version": "",
    "package_name": "",
    "package_publisher": "",
    "productcode": "",
    "upgradecode": "",
    "package_family_name": "",
    "signature_sha256": "",
    "nested": [],
    "signer": None,
}


class InstallerNotFound(NotFound):
    code = "installer_not_found"


@dataclass
class StubServices:
    """A stub of upload_service, client_registry and the audit log.

    `links` are the files by name, each with its version or None. The stub raises `refusal` if set, and `not_inspected`
    only for inspections. `during` runs before the answer to a claim. `hidden` is the blacklist. Unknown files exist
    too, except the `missing` ones. `damaged` are the damaged installers. Restricted tokens may not use `others`.
    `downloads` are the download counts, requested for `days`. `inspected` are the facts of every file.
    A claim returns `claim_fields` of them, and `late_claim_fields` too after the first inspection.
    """

    links: dict[str, str | None] = field(default_factory=dict)
    hidden: dict[str, list[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    damaged: list[dict[str, str]] = field(default_factory=list)
    inspected: dict[str, Any] = field(default_factory=dict)
    claim_fields: dict[str, str] = field(default_factory=dict)
    late_claim_fields: dict[str, str] = field(default_factory=dict)
    downloads: dict[str, dict[str, int]] = field(default_factory=dict)
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)  # by version, of its file
    withheld: dict[str, tuple[int, bool]] = field(default_factory=dict)  # fence and state, by version
    infected: list[str] = field(default_factory=list)
    audited: dict[str, dict[str, Any]] = field(default_factory=dict)  # entries by their ids
    release_refusal: Problem | None = None  # for the four operations above
    hangs: bool = False  # for download counts
    days: int = 0
    counting_since: str | None = None
    refusal: Problem | None = None
    not_inspected: Problem | None = None
    during: Callable[[], Awaitable[object]] | None = None
    operations: list[str] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[problems])
        app.router.add_post("/{tenant_id}/claim_installer", self._claim)
        app.router.add_post("/{tenant_id}/inspect_installer", self._inspect)
        app.router.add_get("/{tenant_id}/inspect_upload/{server_filename}", self._check_uploader)
        app.router.add_post("/{tenant_id}/release_installers", self._release)
        app.router.add_post("/{tenant_id}/unclaimed_installers", self._unclaimed)
        app.router.add_post("/{tenant_id}/damaged_installers", self._damaged)
        app.router.add_post("/{tenant_id}/download_counts", self._download_counts)
        app.router.add_post("/{tenant_id}/download_totals", self._download_totals)
        app.router.add_post("/{tenant_id}/installer_checks", self._checks)
        app.router.add_post("/{tenant_id}/withhold_installers", self._withhold)
        app.router.add_post("/{tenant_id}/infected_installers", self._infected)
        app.router.add_post("/{tenant_id}/record_audit", self._record_audit)
        app.router.add_post("/{tenant_id}/hidden_packages", self._hidden_packages)
        return app

    def reset(self) -> None:
        """Remove all files, facts and refusals."""
        self.links, self.hidden, self.operations, self.damaged = {}, {}, [], []
        self.missing, self.others = set(), set()
        self.inspected, self.claim_fields, self.late_claim_fields = {}, {}, {}
        self.checks, self.withheld, self.infected, self.audited = {}, {}, [], {}
        self.refusal = self.release_refusal = self.not_inspected = self.during = None
        self.downloads, self.days, self.counting_since, self.hangs = {}, 0, None, False

    def add_file(self) -> str:
        """Add an uploaded file. Returns its name."""
        name = f"{uuid4()}.msi"
        self.links[name] = None
        return name

    @property
    def linked_uids(self) -> set[str]:
        return {uid for uid in self.links.values() if uid}

    async def _claim(self, request: web.Request) -> web.Response:
        body = await self._receive(request, "claim_installer")
        name, uid = body["server_filename"], body["version_uid"]
        if name not in self.links or self.links[name] not in {None, uid}:
            raise InstallerNotFound("There is no such file.")
        self.links[name] = uid
        if body["withheld"]:
            self.withheld.setdefault(uid, (0, True))
        if self.during:
            await self.during()
        fields = {"size": 4096, "sha256": DIGEST, "is_withheld": self.withheld.get(uid, (0, False))[1]}
        return json_response({**fields, **self.claim_fields})

    async def _inspect(self, request: web.Request) -> web.Response:
        name = (await self._receive(request, "inspect_installer"))["server_filename"]
        if name not in self.links:
            raise InstallerNotFound("There is no such file.")
        if self.not_inspected:
            raise self.not_inspected
        self.claim_fields = {**self.claim_fields, **self.late_claim_fields}
        return json_response({"server_filename": name, **EMPTY_INSPECTION, **self.inspected})

    async def _check_uploader(self, request: web.Request) -> web.Response:
        name = request.match_info["server_filename"]
        self.operations.append("inspect_upload")
        if name in self.others:
            raise PermissionMissing(permission=Permission.CATALOG_WRITE)
        return json_response({"server_filename": name, **EMPTY_INSPECTION})

    async def _release(self, request: web.Request) -> web.Response:
        body = await self._receive(request, "release_installers")
        self.links = {name: uid for name, uid in self.links.items() if uid not in body["version_uids"]}
        return json_response({})

    async def _unclaimed(self, request: web.Request) -> web.Response:
        requested = (await self._receive(request, "unclaimed_installers"))["server_filenames"]
        names = [name for name in requested if self.links.get(name) is None and name not in self.missing]
        return json_response({"server_filenames": names})

    async def _damaged(self, request: web.Request) -> web.Response:
        await self._receive(request, "damaged_installers")
        return json_response({"installers": self.damaged})

    async def _download_counts(self, request: web.Request) -> web.Response:
        if self.hangs:
            await asyncio.Event().wait()
        self.days = (await self._receive(request, "download_counts"))["days"]
        return json_response({"versions": self.downloads, "since": self.counting_since})

    async def _download_totals(self, request: web.Request) -> web.Response:
        await self._receive(request, "download_totals")
        days: Counter[str] = Counter()
        for numbers in self.downloads.values():
            days.update(numbers)
        versions = {uid: sum(numbers.values()) for uid, numbers in self.downloads.items()}
        return json_response({"days": days, "versions": versions})

    async def _checks(self, request: web.Request) -> web.Response:
        uids = (await self._receive(request, "installer_checks"))["version_uids"]
        return json_response({"installers": {uid: self.checks[uid] for uid in uids if uid in self.checks}})

    async def _withhold(self, request: web.Request) -> web.Response:
        for version in (await self._receive(request, "withhold_installers"))["versions"]:
            fence, _ = self.withheld.get(version["uid"], (-1, False))
            if version["fence"] > fence:
                self.withheld[version["uid"]] = version["fence"], version["withheld"]
        return json_response({})

    async def _infected(self, request: web.Request) -> web.Response:
        await self._receive(request, "infected_installers")
        return json_response({"version_uids": self.infected})

    async def _record_audit(self, request: web.Request) -> web.Response:
        entry = await self._receive(request, "record_audit")
        self.audited.setdefault(entry["id"], entry)
        return json_response({})

    async def _hidden_packages(self, request: web.Request) -> web.Response:
        await self._receive(request, "hidden_packages")
        return json_response({"package_ids": self.hidden.get(request.match_info["tenant_id"], [])})

    async def _receive(self, request: web.Request, operation: str) -> Any:
        self.operations.append(operation)
        if self.refusal:
            raise self.refusal
        if self.release_refusal and operation in RELEASE_OPERATIONS:
            raise self.release_refusal
        return await request.json()


@dataclass(frozen=True)
class Catalog:
    """A running catalog_service: `api` calls it, `database` is its own, `stubs` replaces the other services."""

    api: ServiceApi
    database: MongoDatabase
    stubs: StubServices
    settings: CatalogSettings
    events: Events
    package_service: Packages
    version_service: Versions
    catalogs: CatalogCache
    store: MongoCatalogStore
    releases: Releases
    run_retention: Callable[[], Awaitable[None]]

    async def sweep(self) -> None:
        await self.package_service.sweep()
        await self.version_service.sweep()

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        return await self.api.call(caller, method, operation, *segments, **request)

    async def call_raw(self, caller: Caller, method: str, operation: str, rest: str) -> Answer:
        """Send a path whose `rest` is already escaped."""
        token = sign(KEY, caller, service="catalog_service", operation=operation)
        url = URL(f"{self.api.address}/{caller.tenant_id}/{operation}/{rest}", encoded=True)
        async with self.api.session.request(method, url, headers={INTERNAL_TOKEN: token}) as response:
            return await read_answer(response)

    async def add_package(self, caller: Caller, package_id: str = "acme.editor", **fields: Any) -> None:
        """Add a package. `fields` are further form fields."""
        data = {"package_id": package_id, "package_name": "Editor", "package_publisher": "Acme", **fields}
        answer = await self.call(caller, "POST", "add_package", data=data)
        assert answer.status == 200, answer.body

    async def add_version(self, caller: Caller, package_id: str = "acme.editor", **fields: Any) -> str:
        """Add a version. Returns its UID."""
        answer = await self.post_version(caller, package_id, **fields)
        assert answer.status == 201, answer.body
        uid: str = answer.body["UID"]
        return uid

    async def post_version(self, caller: Caller, package_id: str = "acme.editor", **fields: Any) -> Answer:
        """Send `add_package_version`, by default with a new file. Returns the answer."""
        if not {"server_filename", "installer_url"} & fields.keys():
            fields["server_filename"] = self.stubs.add_file()
        data = version_form(**fields)
        return await self.call(caller, "POST", "add_package_version", package_id, data=data)

    async def packages(self, caller: Caller, **query: str) -> list[dict[str, Any]]:
        """The answer to `get_packages`."""
        answer = await self.call(caller, "POST", "get_packages", params=query)
        assert answer.status == 200, answer.body
        listed: list[dict[str, Any]] = answer.body
        return listed

    async def versions(self, caller: Caller, package_id: str = "acme.editor") -> list[dict[str, Any]]:
        """The answer to `get_package_versions`."""
        answer = await self.call(caller, "GET", "get_package_versions", package_id)
        assert answer.status == 200, answer.body
        listed: list[dict[str, Any]] = answer.body
        return listed

    async def version(self, caller: Caller, uid: str) -> dict[str, Any]:
        """The answer to `get_specific_package_version`."""
        answer = await self.call(caller, "GET", "get_specific_package_version", uid)
        assert answer.status == 200, answer.body
        version: dict[str, Any] = answer.body
        return version

    async def count_records(self, caller: Caller) -> int:
        """The number of a tenant's packages and versions in the database, in any state."""
        query = {"tenant_id": caller.tenant_id}
        return sum([await self.database[name].count_documents(query) for name in ("packages", "versions")])

    @asynccontextmanager
    async def queries(self) -> AsyncIterator[list[Document]]:
        """The queries to the database within the block. The list is filled when the block ends."""
        queries: list[Document] = []
        await self.database.command("profile", 2)
        yield queries
        await self.database.command("profile", 0)
        profile = f"{self.database.name}.system.profile"
        condition = {"ns": {"$ne": profile}, "op": {"$in": ["query", "getmore", "command"]}, "command.profile": None}
        condition["command.filter.halfway"] = {"$ne": True}  # queries of the sweeper
        queries += await self.database["system.profile"].find(condition).to_list(None)
        await self.database.drop_collection("system.profile")

    async def age_and_sweep(self) -> None:
        """Make incomplete records two minutes older, and run the sweeper."""
        for name in ("packages", "versions"):
            await self.database[name].update_many(
                {"halfway": True}, [{"$set": {"changed_at": {"$add": ["$changed_at", -120_000]}}}]
            )
        await self.sweep()


def version_form(**fields: str) -> dict[str, str]:
    """The required fields of the creation form."""
    return {
        "package_version": "1.0",
        "file_architect": "x64",
        "file_type": "MSI",
        "file_scope": "machine",
        **fields,
    }


def picture(kind: str = "PNG", size: tuple[int, int] = (8, 8), mode: str = "RGB", **options: Any) -> bytes:
    """An image file of one colour."""
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind, **options)
    return file.getvalue()


@asynccontextmanager
async def serving_catalog(
    mongo_url: str, redis_url: str, events: Events | None = None, **settings: Any
) -> AsyncIterator[Catalog]:
    """Run catalog_service, by default with in-process events and its own database."""
    stubs = StubServices()
    events = events or LocalEvents()
    async with AsyncExitStack() as stack:
        stub_address = await stack.enter_async_context(serving(stubs.app(), "127.0.0.1:0"))
        catalog_settings = CatalogSettings(
            internal_key=KEYS,
            download_key=KEYS,
            mongo_url=mongo_url,
            redis_url=redis_url,
            upload_service_url=stub_address,
            client_registry_url=stub_address,
            auth_service_url=stub_address,
            **{"database": f"test_catalog_{uuid4().hex[:12]}", **settings},
        )
        app = create_app(catalog_settings, events)
        address = await stack.enter_async_context(serving(app, "127.0.0.1:0"))
        session = await stack.enter_async_context(ClientSession(max_field_size=HEADER_LIMIT))
        opened = open_database if "database" in settings else own_database
        database = await stack.enter_async_context(opened(mongo_url, catalog_settings.database))
        store = app[STORE]
        yield Catalog(
            ServiceApi(session, address, "catalog_service"),
            database,
            stubs,
            catalog_settings,
            events,
            app[PACKAGES],
            app[VERSIONS],
            app[CATALOG_CACHE],
            store,
            app[RELEASES],
            app[RETENTION].run_due,
        )
