"""The settings of upload_service."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from common.settings import (
    EnvironmentSettings,
    Key,
    Listen,
    MongoUrl,
    RabbitUrl,
    ServiceSettings,
    ServiceUrl,
    of_internal_key,
)
from upload_service.model import StorageKind

_S3_URL = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9/_.-]*))?")
_ENDPOINT = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?")
_SCANNER_URL = re.compile(
    r"tcp://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}|unix:///.+|https?://[^/?#\s@]+(?:[/?]\S*)?"
)


def _s3_url(text: str) -> str:
    match = _S3_URL.fullmatch(text)
    prefix = (match[2] or "").strip("/") if match else ""
    if match is None or (prefix and {"", ".", ".."}.intersection(prefix.split("/"))):
        raise ValueError("must be s3://bucket or s3://bucket/prefix")
    return text


def _endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("must be http://host:port or https://host:port, without a user or a path")
    return text.rstrip("/")


def _scanner_url(text: str) -> str:
    if not _SCANNER_URL.fullmatch(text) or urlsplit(text).port == 0:  # A port above 65535 is a ValueError.
        raise ValueError("must be tcp://host:port, unix:///path, or the http(s) URL of a scanner")
    return text


def _certificates(text: str) -> str:
    try:
        if text:
            ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError("must have certificates in PEM") from None
    return text


@dataclass(frozen=True)
class ObjectStorage:
    """A bucket in S3-compatible storage. An `endpoint` or `region` of "" is the provider's default.

    Without a key id the library finds credentials itself. `ca` has certificates in PEM that are trusted besides the
    public ones.
    """

    bucket: str
    prefix: str
    endpoint: str
    region: str
    key_id: str
    secret: SecretStr
    ca: str = ""


class StorageSettings(EnvironmentSettings):
    """The storage of complete installers; `s3_redirect` redirects downloads to the object storage."""

    installer_storage: StorageKind = StorageKind.FOLDER
    s3_url: Annotated[str, AfterValidator(_s3_url)] | None = Field(default=None, validate_default=True)
    s3_endpoint: Annotated[ServiceUrl, AfterValidator(_endpoint)] | None = None
    s3_region: str = Field(default="", pattern="^[A-Za-z0-9-]{0,64}$")
    s3_access_key_id: str = ""
    s3_secret_access_key: SecretStr = Field(default=SecretStr(""), validate_default=True)
    s3_ca: Annotated[str, AfterValidator(_certificates)] = ""
    s3_redirect: bool = False

    @field_validator("s3_url")
    @classmethod
    def _require_url(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is None and info.data.get("installer_storage") is StorageKind.S3:
            raise ValueError("must be given where INSTALLER_STORAGE is s3")
        return url

    @field_validator("s3_secret_access_key")
    @classmethod
    def _require_pair(cls, secret: SecretStr, info: ValidationInfo) -> SecretStr:
        if bool(secret.get_secret_value()) != bool(info.data.get("s3_access_key_id")):
            raise ValueError("is given with S3_ACCESS_KEY_ID, or neither is")
        return secret

    @property
    def object_storage(self) -> ObjectStorage | None:
        """The object storage, if there is one: the chosen one, or one that still has earlier files."""
        match = _S3_URL.fullmatch(self.s3_url or "")
        if match is None:
            return None
        return ObjectStorage(
            bucket=match[1],
            prefix=(match[2] or "").strip("/"),
            endpoint=self.s3_endpoint or "",
            region=self.s3_region,
            key_id=self.s3_access_key_id,
            secret=self.s3_secret_access_key,
            ca=self.s3_ca,
        )


class UploadSettings(StorageSettings, ServiceSettings):
    """`installers` is the folder that all replicas share; ages and intervals are seconds.

    A stored file is read again after `scrub_interval`; 0 is never. `download_counts` counts complete downloads.
    Files of at most `scanner_limit` bytes are sent to the scanner, if there is one. A scan takes at most
    `scanner_timeout` seconds.
    `signature_trust` is a PEM file, or a folder of them, with the certificates that signers of installers lead to.
    """

    listen: Listen = "127.0.0.1:8083"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    rabbitmq_url: RabbitUrl = "amqp://guest:guest@127.0.0.1:5672/"
    database: str = "upload"
    installers: Path
    download_key: Key
    upload_service_key: Key = of_internal_key()
    transfer_idle: int = Field(default=24 * 3600, ge=1)
    unclaimed_age: int = Field(default=24 * 3600, ge=1)
    scrub_interval: int = Field(default=7 * 24 * 3600, ge=0)
    download_counts: bool = True
    scanner_url: Annotated[str, AfterValidator(_scanner_url)] | None = None
    scanner_limit: int = Field(default=100 << 20, ge=1)
    scanner_timeout: int = Field(default=600, ge=1)
    signature_trust: Path | None = None
