"""Settings of the gateway."""

from ipaddress import ip_network
from typing import Annotated

from aiohttp import web
from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from common.auth.internal_tokens import Deployment
from common.settings import Key, Listen, Origin, RabbitUrl, RedisUrl, ServiceSettings, ServiceUrl, of_internal_key
from common.tenants import Network, is_tenant_id


class GatewaySettings(ServiceSettings):
    """Lifetimes are seconds, `catalog_memory` is bytes.

    `public_url` is the base of all addresses in responses; without it, they have the request's own scheme and host.
    `trusted_proxies` are the networks of the load balancers whose forwarding headers count.
    `tenant_id` is the tenant of the single-tenant deployment.
    `default_tenant` is the tenant whose dashboard a browser at `/` opens in the multi-tenant deployment.
    Without `rabbitmq_url`, open pages get no events when an upload is finished.
    """

    listen: Listen = "127.0.0.1:8080"
    deployment: Deployment = Deployment.MULTI
    tenant_id: str = "main"
    default_tenant: str = ""
    public_url: Origin = ""
    trusted_proxies: Annotated[tuple[Network, ...], NoDecode] = ()
    redis_url: RedisUrl = "redis://127.0.0.1:6379"
    rabbitmq_url: RabbitUrl | None = None
    session_key: Key
    auth_service_key: Key = of_internal_key()
    catalog_service_key: Key = of_internal_key()
    upload_service_key: Key = of_internal_key()
    client_registry_key: Key = of_internal_key()
    session_lifetime: int = Field(default=3600, ge=1)
    session_idle: int = Field(default=3600, ge=1)
    catalog_memory: int = Field(default=256 << 20, ge=0)
    auth_service_url: ServiceUrl = "http://127.0.0.1:8081"
    catalog_service_url: ServiceUrl = "http://127.0.0.1:8082"
    upload_service_url: ServiceUrl = "http://127.0.0.1:8083"
    client_registry_url: ServiceUrl = "http://127.0.0.1:8084"

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
        return value

    @field_validator("tenant_id")
    @classmethod
    def _is_tenant_id(cls, value: str) -> str:
        if not is_tenant_id(value):
            raise ValueError("must be 1 to 63 of a-z, 0-9, _ and -, and not a reserved word")
        return value

    @field_validator("default_tenant")
    @classmethod
    def _is_tenant_id_or_empty(cls, value: str) -> str:
        return cls._is_tenant_id(value) if value else value


SETTINGS = web.AppKey("settings", GatewaySettings)
