"""The settings of auth_service."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from common.settings import Key, Listen, MongoUrl, Origin, RedisUrl, ServiceSettings, of_internal_key
from common.tenants import parse_network

KEY_MINIMUM = 32  # characters
PUBLIC_ENTRA = "https://login.microsoftonline.com"


def _long_enough(keys: SecretStr) -> SecretStr:
    if min((len(key) for key in keys.get_secret_value().split()), default=0) < KEY_MINIMUM:
        raise ValueError(f"must be keys of at least {KEY_MINIMUM} characters, with white space between them")
    return keys


# The first key signs, all verify: a replaced key stays behind the new one as long as its entries are kept.
AuditKey = Annotated[SecretStr, AfterValidator(_long_enough)]


class AuthSettings(ServiceSettings):
    """Lifetimes are seconds. `entra_authority` is the cloud of Entra ID that publishes keys.

    `company_login_by_tenants`: administrators set the company login of their tenant. Its provider has a public address,
    or one in `company_login_networks`.
    """

    listen: Listen = "127.0.0.1:8081"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    redis_url: RedisUrl = "redis://127.0.0.1:6379"
    database: str = "auth"
    session_key: Key
    audit_key: AuditKey
    auth_service_key: Key = of_internal_key()
    session_lifetime: int = Field(default=3600, ge=1)
    session_idle: int = Field(default=3600, ge=1)
    entra_authority: Origin = PUBLIC_ENTRA
    company_login_by_tenants: bool = True
    company_login_networks: Annotated[tuple[str, ...], NoDecode] = ()

    @field_validator("company_login_networks", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        if isinstance(value, str):
            parts = (part.strip() for part in value.split(","))
            return tuple(parse_network("company_login_networks", part) for part in parts if part)
        return value
