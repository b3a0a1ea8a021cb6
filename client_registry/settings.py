"""The settings of client_registry."""

from pydantic import Field

from common.settings import Key, Listen, MongoUrl, Origin, RedisUrl, ServiceSettings, ServiceUrl, of_internal_key


class RegistrySettings(ServiceSettings):
    """`download_lifetime` is in seconds; `download_url` is for downloads past the gateway.

    Client tokens are stored under `client_token_key`: a removed key makes the tokens under it unknown.
    An API token enrolls at most `enrollments_per_hour` machines.
    """

    listen: Listen = "127.0.0.1:8084"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    redis_url: RedisUrl = "redis://127.0.0.1:6379"
    database: str = "clients"
    client_token_key: Key
    client_registry_key: Key = of_internal_key()
    upload_service_key: Key = of_internal_key()
    download_key: Key
    download_url: Origin = ""
    download_lifetime: int = Field(default=3600, ge=1)
    enrollments_per_hour: int = Field(default=1000, ge=1)
    upload_service_url: ServiceUrl = "http://127.0.0.1:8083"
