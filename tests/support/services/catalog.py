"""A running catalog_service, with stand-ins of the other services."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession
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
from common.errors import Problem
from common.events import Events, LocalEvents
from common.http.server import serving
from common.mongo import Document, MongoDatabase, open_database
from common.service_client.client import HEADER_LIMIT
from tests.support.api import Answer, ServiceApi, read_answer
from tests.support.databases import own_database
from tests.support.factories import KEY, KEYS
from tests.support.services.stand_ins import AuthStandIn, RegistryStandIn, UploadStandIn

RELEASE_OPERATIONS = {"installer_checks", "withhold_installers", "infected_installers", "record_audit"}
UPLOADER_CHECK: dict[str, Problem | None] = {"inspect_upload": None}  # is never refused
# The fields of an external installer.
EXTERNAL = {"installer_url": "https://downloads.example.com/editor.msi?build=7", "installer_sha256": "cd" * 32}


@dataclass
class CatalogStubs(UploadStandIn, RegistryStandIn, AuthStandIn):
    """The stand-ins of the services that catalog_service calls, with one `refusal` for all of them."""

    refusals: dict[str, Problem | None] = field(default_factory=lambda: {**UPLOADER_CHECK})

    @property
    def release_refusal(self) -> Problem | None:
        """The refusal of the operations of release control."""
        return self.refusals.get("installer_checks")

    @release_refusal.setter
    def release_refusal(self, problem: Problem | None) -> None:
        refused = dict.fromkeys(RELEASE_OPERATIONS, problem) if problem else {}
        self.refusals = {**UPLOADER_CHECK, **refused}


@dataclass(frozen=True)
class Catalog:
    """A running catalog_service: `api` calls it, `database` is its own, `stubs` stand in for the other services."""

    api: ServiceApi
    database: MongoDatabase
    stubs: CatalogStubs
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
    stubs = CatalogStubs()
    events = events or LocalEvents()
    async with AsyncExitStack() as stack:
        addresses = {
            f"{name}_url": await stack.enter_async_context(serving(stubs.app(name), "127.0.0.1:0"))
            for name in ("upload_service", "client_registry", "auth_service")
        }
        catalog_settings = CatalogSettings(
            internal_key=KEYS,
            download_key=KEYS,
            mongo_url=mongo_url,
            redis_url=redis_url,
            **{**addresses, "database": f"test_catalog_{uuid4().hex[:12]}", **settings},
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
