"""What auth_service is told."""

from pydantic import Field

from common.settings import Key, Listen, MongoUrl, RedisUrl, ServiceSettings, ServiceUrl, of_internal_key


class AuthSettings(ServiceSettings):
    """Lifetimes are seconds."""

    listen: Listen = "127.0.0.1:8081"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    redis_url: RedisUrl = "redis://127.0.0.1:6379"
    database: str = "auth"
    session_key: Key
    auth_service_key: Key = of_internal_key()
    upload_service_key: Key = of_internal_key()
    client_registry_key: Key = of_internal_key()
    session_lifetime: int = Field(default=3600, ge=1)
    session_idle: int = Field(default=3600, ge=1)
    upload_service_url: ServiceUrl = "http://127.0.0.1:8083"
    client_registry_url: ServiceUrl = "http://127.0.0.1:8084"
