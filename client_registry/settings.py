"""What client_registry is told."""

from pydantic import Field

from common.settings import Key, Listen, MongoUrl, ServiceSettings, ServiceUrl


class RegistrySettings(ServiceSettings):
    """`download_lifetime` is in seconds. A new `client_token_key` makes every client token of before unknown."""

    listen: Listen = "127.0.0.1:8084"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    database: str = "clients"
    client_token_key: Key
    download_key: Key
    download_lifetime: int = Field(default=3600, ge=1)
    upload_service_url: ServiceUrl = "http://127.0.0.1:8083"
