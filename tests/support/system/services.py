"""All services on real stores, with a gateway of each deployment, for system tests."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from aiohttp import ClientSession
from multidict import CIMultiDict
from yarl import URL

from auth_service.app import create_app as create_auth_service
from auth_service.settings import AuthSettings
from auth_service.users.throttle_store import RedisFailureCounts
from catalog_service.app import create_app as create_catalog_service
from catalog_service.settings import CatalogSettings
from client_registry.app import create_app as create_client_registry
from client_registry.settings import RegistrySettings
from common.auth.internal_tokens import Deployment
from common.http.server import management_of, serving
from common.redis import open_redis
from common.tenants import Tenant
from deploy.cluster.rights import OPERATOR
from deploy.local.folder import Addresses
from deploy.operator.tenants import Operator, open_operator
from gateway.app import create_app as create_gateway
from gateway.settings import GatewaySettings
from tests.support.api import Answer, read_answer
from tests.support.factories import KEY, KEYS, make_tenant
from tests.support.servers.users import same_for_all
from tests.support.system.raw_http import send_raw
from upload_service.app import create_app as create_upload_service
from upload_service.settings import UploadSettings

PASSWORD = "a password for tests"
SINGLE_TENANT = f"single{uuid4().hex[:8]}"


@dataclass(frozen=True)
class Api:
    """A caller of one tenant through the gateway. `headers` may have a session."""

    session: ClientSession
    base_url: str
    tenant_id: str
    deployment: Deployment
    headers: dict[str, str] = field(default_factory=dict)

    async def call(self, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        """Send a request. `request` has `data`, `params` or `headers` of aiohttp's client."""
        path = "/".join(quote(part, safe="") for part in (operation, *segments))
        own = CIMultiDict(request.pop("headers", ()))
        headers = CIMultiDict({name: value for name, value in self.headers.items() if name not in own})
        headers.extend(own)
        async with self.session.request(
            method, f"{self.base_url}/{path}", headers=headers, allow_redirects=False, **request
        ) as response:
            return await read_answer(response)

    async def call_raw(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Send a request with bytes that a client library would correct. `target` is the whole path."""
        origin = str(URL(self.base_url).origin())
        return await send_raw(origin, method, target, {**self.headers, **(headers or {})}, body)

    @property
    def path(self) -> str:
        """The path before an operation."""
        return URL(self.base_url).path

    def by_alias(self) -> "Api":
        """The same caller at the tenant's second address, `/client/api/{tenant_id}`, of the multi-tenant deployment."""
        origin = self.base_url.removesuffix(self.tenant_id)
        return replace(self, base_url=f"{origin}client/api/{self.tenant_id}")

    def anonymous(self) -> "Api":
        return Api(self.session, self.base_url, self.tenant_id, self.deployment)

    async def signed_in(self, username: str = "admin", password: str = PASSWORD) -> "Api":
        """Sign in. Returns a caller with a new session."""
        answer = await self.anonymous().call("POST", "login", data={"username": username, "password": password})
        assert answer.status == 200, answer.body
        return Api(self.session, self.base_url, self.tenant_id, self.deployment, bearer(answer.body["message"]))


@dataclass(frozen=True)
class Services:
    """The running services: their addresses and management addresses by name, and the operator."""

    session: ClientSession
    addresses: dict[str, str]
    operator: Operator
    installers: Path
    failures: RedisFailureCounts
    management: dict[str, str] = field(default_factory=dict)

    async def tenant(self, deployment: Deployment = Deployment.MULTI, **settings: Any) -> Api:
        """Create a tenant and sign in its administrator. The single-tenant deployment has one shared tenant."""
        # All tests have one address, so failed logins of earlier tests are forgotten.
        await self.failures.forget("address:127.0.0.1")
        if deployment is Deployment.SINGLE:
            return await self.api(SINGLE_TENANT, deployment).signed_in()
        tenant = make_tenant(**settings)
        await self.operator.tenants.create(tenant)
        await self.operator.users.create(tenant.tenant_id, "admin", PASSWORD)
        return await self.api(tenant.tenant_id, deployment).signed_in()

    def api(self, tenant_id: str, deployment: Deployment = Deployment.MULTI) -> Api:
        prefix = "client/api" if deployment is Deployment.SINGLE else tenant_id
        return Api(self.session, f"{self.addresses[deployment]}/{prefix}", tenant_id, deployment)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def all_services(
    folder: Path,
    mongo_url: str,
    redis_url: str,
    rabbitmq_url: str,
    address: Callable[[str, str], str] = same_for_all,
    scanner_url: str | None = None,
) -> AsyncIterator[Services]:
    """Start the services on unix sockets in `folder`, and the gateways on free ports.

    `address` returns the URL of a store for a service.
    """
    names = ("auth_service", "catalog_service", "upload_service", "client_registry")
    sockets = {name: f"unix:{folder / name}.sock" for name in names}
    key = KEYS
    (folder / "installers").mkdir()
    common: dict[str, Any] = {
        "internal_key": key,
        "session_key": key,
        "audit_key": KEY,
        "download_key": key,
        "client_token_key": key,
        "company_login_networks": "127.0.0.0/8",  # of the provider's double
        "installers": folder / "installers",
        **{f"{name}_url": address for name, address in sockets.items()},
    }
    stores = {"mongo_url": mongo_url, "redis_url": redis_url, "rabbitmq_url": rabbitmq_url}

    def settings_of(service: str) -> dict[str, Any]:
        return {**common, **{name: address(url, service) for name, url in stores.items()}}

    apps = {
        "auth_service": create_auth_service(AuthSettings(**settings_of("auth_service"))),
        "catalog_service": create_catalog_service(CatalogSettings(**settings_of("catalog_service"))),
        "upload_service": create_upload_service(
            UploadSettings(**settings_of("upload_service"), scanner_url=scanner_url)
        ),
        "client_registry": create_client_registry(RegistrySettings(**settings_of("client_registry"))),
    }
    async with AsyncExitStack() as stack:
        addresses = {name: await stack.enter_async_context(serving(app, sockets[name])) for name, app in apps.items()}
        for deployment in Deployment:
            apps[deployment] = create_gateway(
                GatewaySettings(**settings_of("gateway"), deployment=deployment, tenant_id=SINGLE_TENANT)
            )
            addresses[deployment] = await stack.enter_async_context(serving(apps[deployment], "127.0.0.1:0"))
        management = {
            name: await stack.enter_async_context(serving(management_of(app), "127.0.0.1:0"))
            for name, app in apps.items()
        }
        operator = await stack.enter_async_context(
            open_operator(Addresses("", address(mongo_url, OPERATOR), address(redis_url, OPERATOR)))
        )
        await operator.tenants.create(Tenant(SINGLE_TENANT))
        await operator.users.create(SINGLE_TENANT, "admin", PASSWORD)
        session = await stack.enter_async_context(ClientSession())
        redis = await stack.enter_async_context(open_redis(redis_url))
        yield Services(session, addresses, operator, folder / "installers", RedisFailureCounts(redis), management)
