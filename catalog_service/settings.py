"""The settings of catalog_service."""

from pydantic import Field

from common.settings import (
    Key,
    Listen,
    MongoUrl,
    Origin,
    RabbitUrl,
    RedisUrl,
    ServiceSettings,
    ServiceUrl,
    of_internal_key,
)


class CatalogSettings(ServiceSettings):
    """Lifetimes and ages are seconds, `catalog_disk`, `catalog_memory` and `search_memory` are bytes.

    `download_url` is an address of upload_service past the gateway, or empty.
    """

    listen: Listen = "127.0.0.1:8082"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    redis_url: RedisUrl = "redis://127.0.0.1:6379"
    rabbitmq_url: RabbitUrl = "amqp://guest:guest@127.0.0.1:5672/"
    database: str = "catalog"
    upload_service_url: ServiceUrl = "http://127.0.0.1:8083"
    client_registry_url: ServiceUrl = "http://127.0.0.1:8084"
    auth_service_url: ServiceUrl = "http://127.0.0.1:8081"
    download_key: Key
    download_url: Origin = ""
    catalog_service_key: Key = of_internal_key()
    upload_service_key: Key = of_internal_key()
    client_registry_key: Key = of_internal_key()
    auth_service_key: Key = of_internal_key()
    download_lifetime: int = Field(default=3600, ge=1)
    finished_uploads_age: int = Field(default=24 * 3600, ge=1)
    catalog_disk: int = Field(default=2 << 30, ge=0)
    catalog_memory: int = Field(default=192 << 20, ge=0)
    search_memory: int = Field(default=64 << 20, ge=0)
