"""catalog_service served on its own, with stand-ins for the services that it asks."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession, web
from motor.motor_asyncio import AsyncIOMotorClient
from PIL import Image
from yarl import URL

from catalog_service.app import create_app
from catalog_service.app_keys import CATALOG_CACHE, PACKAGES, STORE, VERSIONS
from catalog_service.catalog.cache import CatalogCache
from catalog_service.outgoing.upload_service import UploadService
from catalog_service.settings import CatalogSettings
from catalog_service.store import MongoCatalogStore
from catalog_service.sweeper import Sweeper
from common.auth.callers import INTERNAL_TOKEN, Caller, sign
from common.errors import NotFound, Problem
from common.events import Events
from common.events.local import LocalEvents
from common.http.middleware import json_response, problems
from common.http.server import serving
from common.mongo import Document, MongoDatabase, open_database
from common.service_client.client import HEADER_LIMIT, open_service
from tests.support.api import Answer, ServiceApi, read_answer
from tests.support.factories import KEY, KEYS

DIGEST = "ab" * 32
# Where an installer is kept that never comes here.
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
    """Answers as upload_service and client_registry would.

    `links` are the files that there are, by name, with the version each is linked to or None. `refusal` is answered
    instead where there is one, `not_inspected` by inspections alone; `during` runs while a claim is being answered.
    `hidden` is the blacklist. Files that are not told of are there too, all but those that are `gone`; `damaged` are
    those that upload_service would list. `inspected` is what every file says of itself, and `found` how much of that a
    claim tells, with `found_late` from the first inspection on.
    """

    links: dict[str, str | None] = field(default_factory=dict)
    hidden: dict[str, list[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    damaged: list[dict[str, str]] = field(default_factory=list)
    inspected: dict[str, Any] = field(default_factory=dict)
    claim_fields: dict[str, str] = field(default_factory=dict)
    late_claim_fields: dict[str, str] = field(default_factory=dict)
    refusal: Problem | None = None
    not_inspected: Problem | None = None
    during: Callable[[], Awaitable[object]] | None = None
    operations: list[str] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[problems])
        app.router.add_post("/{tenant_id}/claim_installer", self._claim)
        app.router.add_post("/{tenant_id}/inspect_installer", self._inspect)
        app.router.add_post("/{tenant_id}/release_installers", self._release)
        app.router.add_post("/{tenant_id}/unclaimed_installers", self._unclaimed)
        app.router.add_post("/{tenant_id}/damaged_installers", self._damaged)
        app.router.add_post("/{tenant_id}/hidden_packages", self._hidden_packages)
        return app

    def reset(self) -> None:
        """Forget every file and refuse nothing."""
        self.links, self.hidden, self.operations, self.missing, self.damaged = {}, {}, [], set(), []
        self.inspected, self.claim_fields, self.late_claim_fields = {}, {}, {}
        self.refusal = self.not_inspected = self.during = None

    def add_file(self) -> str:
        """The name of a file that was just uploaded."""
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
        if self.during:
            await self.during()
        return json_response({"size": 4096, "sha256": DIGEST, **self.claim_fields})

    async def _inspect(self, request: web.Request) -> web.Response:
        name = (await self._receive(request, "inspect_installer"))["server_filename"]
        if name not in self.links:
            raise InstallerNotFound("There is no such file.")
        if self.not_inspected:
            raise self.not_inspected
        self.claim_fields = {**self.claim_fields, **self.late_claim_fields}
        return json_response({"server_filename": name, **EMPTY_INSPECTION, **self.inspected})

    async def _release(self, request: web.Request) -> web.Response:
        body = await self._receive(request, "release_installers")
        self.links = {name: uid for name, uid in self.links.items() if uid not in body["version_uids"]}
        return json_response({})

    async def _unclaimed(self, request: web.Request) -> web.Response:
        asked = (await self._receive(request, "unclaimed_installers"))["server_filenames"]
        names = [name for name in asked if self.links.get(name) is None and name not in self.missing]
        return json_response({"server_filenames": names})

    async def _damaged(self, request: web.Request) -> web.Response:
        await self._receive(request, "damaged_installers")
        return json_response({"installers": self.damaged})

    async def _hidden_packages(self, request: web.Request) -> web.Response:
        await self._receive(request, "hidden_packages")
        return json_response({"package_ids": self.hidden.get(request.match_info["tenant_id"], [])})

    async def _receive(self, request: web.Request, operation: str) -> Any:
        self.operations.append(operation)
        if self.refusal:
            raise self.refusal
        return await request.json()


@dataclass(frozen=True)
class Catalog:
    """A served catalog_service: `api` calls it, `database` is its own, `others` stands in for its fellows."""

    api: ServiceApi
    database: MongoDatabase
    stubs: StubServices
    settings: CatalogSettings
    events: Events
    sweeper: Sweeper
    catalogs: CatalogCache
    store: MongoCatalogStore

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        return await self.api.call(caller, method, operation, *segments, **request)

    async def call_raw(self, caller: Caller, method: str, operation: str, rest: str) -> Answer:
        """The answer to a path whose end is sent as it stands, escapes and all."""
        token = sign(KEY, caller, service="catalog_service", operation=operation)
        url = URL(f"{self.api.address}/{caller.tenant_id}/{operation}/{rest}", encoded=True)
        async with self.api.session.request(method, url, headers={INTERNAL_TOKEN: token}) as response:
            return await read_answer(response)

    async def add_package(self, caller: Caller, package_id: str = "acme.editor", **fields: Any) -> None:
        """A package that was added; its other fields are named after it."""
        data = {"package_id": package_id, "package_name": "Editor", "package_publisher": "Acme", **fields}
        answer = await self.call(caller, "POST", "add_package", data=data)
        assert answer.status == 200, answer.body

    async def add_version(self, caller: Caller, package_id: str = "acme.editor", **fields: Any) -> str:
        """The UID of a version that was added."""
        answer = await self.post_version(caller, package_id, **fields)
        assert answer.status == 201, answer.body
        uid: str = answer.body["UID"]
        return uid

    async def post_version(self, caller: Caller, package_id: str = "acme.editor", **fields: Any) -> Answer:
        """The answer to `add_package_version`, with a file of its own unless the fields say where it is."""
        if not {"server_filename", "installer_url"} & fields.keys():
            fields["server_filename"] = self.stubs.add_file()
        data = version_form(**fields)
        return await self.call(caller, "POST", "add_package_version", package_id, data=data)

    async def packages(self, caller: Caller, **query: str) -> list[dict[str, Any]]:
        """What `get_packages` answers."""
        answer = await self.call(caller, "POST", "get_packages", params=query)
        assert answer.status == 200, answer.body
        listed: list[dict[str, Any]] = answer.body
        return listed

    async def versions(self, caller: Caller, package_id: str = "acme.editor") -> list[dict[str, Any]]:
        """What `get_package_versions` answers."""
        answer = await self.call(caller, "GET", "get_package_versions", package_id)
        assert answer.status == 200, answer.body
        listed: list[dict[str, Any]] = answer.body
        return listed

    async def version(self, caller: Caller, uid: str) -> dict[str, Any]:
        """What `get_specific_package_version` answers."""
        answer = await self.call(caller, "GET", "get_specific_package_version", uid)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.body
        return found

    async def count_records(self, caller: Caller) -> int:
        """How many packages and versions the database holds of a tenant, in whatever state."""
        wanted = {"tenant_id": caller.tenant_id}
        return sum([await self.database[name].count_documents(wanted) for name in ("packages", "versions")])

    @asynccontextmanager
    async def queries(self) -> AsyncIterator[list[Document]]:
        """What the database is asked within the block, there when it ends."""
        asked: list[Document] = []
        await self.database.command("profile", 2)
        yield asked
        await self.database.command("profile", 0)
        profile = f"{self.database.name}.system.profile"
        ours = {"ns": {"$ne": profile}, "op": {"$in": ["query", "getmore", "command"]}, "command.profile": None}
        ours["command.filter.halfway"] = {"$ne": True}  # the sweeper's, which are nobody's
        asked += await self.database["system.profile"].find(ours).to_list(None)
        await self.database.drop_collection("system.profile")

    async def age_and_sweep(self) -> None:
        """Make everything halfway two minutes older, and sweep."""
        for name in ("packages", "versions"):
            await self.database[name].update_many(
                {"halfway": True}, [{"$set": {"changed_at": {"$add": ["$changed_at", -120_000]}}}]
            )
        await self.sweeper.sweep()


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
    written = io.BytesIO()
    Image.new(mode, size).save(written, kind, **options)
    return written.getvalue()


@asynccontextmanager
async def serving_catalog(
    mongo_url: str, redis_url: str, events: Events | None = None, **settings: Any
) -> AsyncIterator[Catalog]:
    """catalog_service with events in process unless others are given, on a database of its own unless one is named."""
    others = StubServices()
    events = events or LocalEvents()
    async with AsyncExitStack() as stack:
        address_of_others = await stack.enter_async_context(serving(others.app(), "127.0.0.1:0"))
        chosen = CatalogSettings(
            internal_key=KEYS,
            download_key=KEYS,
            mongo_url=mongo_url,
            redis_url=redis_url,
            upload_service_url=address_of_others,
            client_registry_url=address_of_others,
            **{"database": f"test_catalog_{uuid4().hex[:12]}", **settings},
        )
        app = create_app(chosen, events)
        address = await stack.enter_async_context(serving(app, "127.0.0.1:0"))
        session = await stack.enter_async_context(ClientSession(max_field_size=HEADER_LIMIT))
        opened = open_database if "database" in settings else own_database
        database = await stack.enter_async_context(opened(mongo_url, chosen.database))
        fellow = open_service(address_of_others, service="upload_service", keys=KEYS)
        installers = UploadService(await stack.enter_async_context(fellow))
        store = app[STORE]
        sweeper = Sweeper(store, app[PACKAGES], app[VERSIONS], installers)
        yield Catalog(
            ServiceApi(session, address, "catalog_service"),
            database,
            others,
            chosen,
            events,
            sweeper,
            app[CATALOG_CACHE],
            store,
        )


@asynccontextmanager
async def own_database(mongo_url: str, name: str, **options: Any) -> AsyncIterator[MongoDatabase]:
    """A test's own view of a database, which is dropped at the end."""
    mongo: AsyncIOMotorClient[Document] = AsyncIOMotorClient(mongo_url, tz_aware=True, **options)
    try:
        yield mongo[name]
    finally:
        await mongo.drop_database(name)
        mongo.close()
