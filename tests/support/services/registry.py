"""A running client_registry, with a stand-in of upload_service."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aiohttp import ClientSession
from motor.motor_asyncio import AsyncIOMotorClient

from client_registry.app import create_app
from client_registry.settings import RegistrySettings
from common.auth.internal_tokens import Caller
from common.http.server import serving
from common.mongo import MongoDatabase
from common.service_client.client import HEADER_LIMIT
from tests.support.api import Answer, ServiceApi
from tests.support.factories import KEYS, make_caller
from tests.support.services.stand_ins import UploadStandIn


@dataclass(frozen=True)
class Registry:
    """A running client_registry: `api` calls it, `database` is its own, `uploads` stands in for upload_service."""

    api: ServiceApi
    database: MongoDatabase
    uploads: UploadStandIn
    settings: RegistrySettings

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        return await self.api.call(caller, method, operation, *segments, **request)

    async def add_client(self, caller: Caller, name: str = "pc-1") -> dict[str, str]:
        """Add a client. Returns the answer's body."""
        answer = await self.call(caller, "POST", "add_client", data={"client_name": name})
        assert answer.status == 201, answer.body
        added: dict[str, str] = answer.body
        return added

    async def identify(self, caller: Caller, token: object, client: int = 1) -> str | None:
        """The client id of a token, or None."""
        answer = await self.call(caller, "POST", "identify_client", json={"auth_token": token, "client": client})
        assert answer.status == 200, answer.body
        client_id: str | None = answer.body["client_id"]
        return client_id

    async def client(self, caller: Caller, client_id: str) -> dict[str, Any]:
        """A client as `get_clients` lists it."""
        listed = (await self.call(caller, "GET", "get_clients")).body
        client: dict[str, Any] = next(item for item in listed if item["client_id"] == client_id)
        return client

    async def hidden_from(self, caller: Caller, client_id: str, ip: str = "192.0.2.1") -> list[str]:
        """The package ids that are hidden from a client at this address."""
        client = make_caller(caller.tenant, ip=ip).as_client(client_id)
        hidden: list[str] = (await self.call(client, "POST", "hidden_packages", json={})).body["package_ids"]
        return hidden


@asynccontextmanager
async def serving_registry(mongo_url: str, redis_url: str, **values: Any) -> AsyncIterator[Registry]:
    """Run client_registry on its own database, with these settings."""
    uploads = UploadStandIn()
    async with AsyncExitStack() as stack:
        upload_service = await stack.enter_async_context(serving(uploads.app("upload_service"), "127.0.0.1:0"))
        settings = RegistrySettings(
            internal_key=KEYS,
            client_token_key=KEYS,
            download_key=KEYS,
            mongo_url=mongo_url,
            redis_url=redis_url,
            database=f"test_clients_{uuid4().hex[:12]}",
            upload_service_url=upload_service,
            **values,
        )
        address = await stack.enter_async_context(serving(create_app(settings), "127.0.0.1:0"))
        session = await stack.enter_async_context(ClientSession(max_field_size=HEADER_LIMIT))
        mongo: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(mongo_url, tz_aware=True)
        stack.callback(mongo.close)
        stack.push_async_callback(mongo.drop_database, settings.database)
        api = ServiceApi(session, address, "client_registry")
        yield Registry(api, mongo[settings.database], uploads, settings)
