"""Settings from environment variables, validated once at the start.

Each variable can also be a file: `SESSION_KEY_FILE=/run/secrets/session_key` reads `SESSION_KEY` from it. An empty
variable counts as absent. A key in a file is read again when the file changes.
"""

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, SchemaValidator, ValidationError
from pydantic_core.core_schema import multi_host_url_schema, url_schema
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from common.auth.signing import Keys

_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})")


def _listen(text: str) -> str:
    match = _HOST_AND_PORT.fullmatch(text)
    if not (match and int(match[1]) < 65536) and not re.fullmatch(r"unix:/.+", text):
        raise ValueError("must be host:port, [address]:port or unix:/path, with a port up to 65535")
    return text


def _url(schema: CoreSchema, socket: str = "") -> AfterValidator:
    """Validate a URL without changing it; a URL of a unix socket starts with `socket`."""
    url = SchemaValidator(schema)

    def check(text: str) -> str:
        if socket and text.startswith(socket):
            return text
        try:
            url.validate_python(text)
        except ValidationError as error:
            raise ValueError(error.errors(include_input=False)[0]["msg"]) from None
        return text

    return AfterValidator(check)


def _with_extra(text: str) -> str:
    if find_spec("opentelemetry") is None:
        raise ValueError("wants the extra `otel`: pip install 'pkgrepo[otel]'")
    return text


def _keys(value: object) -> object:
    """The keys of a setting: a text or a file."""
    if value is None:
        raise ValueError("must be given, or INTERNAL_KEY for all services")
    return Keys(value) if isinstance(value, (str, Path)) else value


def of_internal_key() -> Any:
    """The default of a service's key: INTERNAL_KEY."""
    return Field(default_factory=lambda values: values.get("internal_key"))


_OPTIONAL: Any = Field(default=None, validate_default=False)  # for a key that is only the default of others
Key = Annotated[InstanceOf[Keys], BeforeValidator(_keys)]
Listen = Annotated[str, AfterValidator(_listen)]
MongoUrl = Annotated[str, _url(multi_host_url_schema(allowed_schemes=["mongodb", "mongodb+srv"], host_required=True))]
RedisUrl = Annotated[str, _url(url_schema(allowed_schemes=["redis", "rediss"], host_required=True), "unix:///")]
RabbitUrl = Annotated[str, _url(url_schema(allowed_schemes=["amqp", "amqps"], host_required=True))]
ServiceUrl = Annotated[str, _url(url_schema(allowed_schemes=["http", "https"], host_required=True), "unix:/")]
CollectorUrl = Annotated[
    str, _url(url_schema(allowed_schemes=["http", "https"], host_required=True)), AfterValidator(_with_extra)
]
Origin = Annotated[str, Field(pattern=r"^(https?://[^/?#\s]+)?$")]
Settings = TypeVar("Settings", bound="EnvironmentSettings")

# Not read from the environment: operator commands find a service's data by the fixed name of its database.
FIXED = frozenset(["database"])


class BadSetting(Exception):
    """A setting is missing or invalid; the text is one line for the operator and never holds a secret."""


class EnvironmentSettings(BaseSettings):
    """Settings that are read from environment variables, or from the files that they name."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, env_ignore_empty=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, VariableSource(settings_cls), FileSource(settings_cls)


class ServiceSettings(EnvironmentSettings):
    """The settings of every service. `listen` is `host:port` or `unix:/path/of/the.sock`.

    `management_listen` serves probes and metrics for operators. A service's own key defaults to `internal_key`. Traces
    are sent to `otel_exporter_otlp_endpoint`.
    """

    listen: Listen = "127.0.0.1:8080"
    management_listen: Listen | None = None
    internal_key: Key = _OPTIONAL
    access_log: bool = True
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    otel_exporter_otlp_endpoint: CollectorUrl | None = None


class VariableSource(EnvSettingsSource):
    """Reads the variable `NAME`."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name not in FIXED}


class FileSource(PydanticBaseSettingsSource):
    """Reads the file that the variable `NAME_FILE` names."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = f"{field_name.upper()}_FILE"
        path = os.environ.get(name)
        try:
            text = Path(path).read_text(encoding="utf-8").strip() if path else None
            # `Keys` reads its file again later.
            return Path(path) if path and text and field.annotation is Keys else text, field_name, False
        except OSError as error:
            raise BadSetting(f"{name}: {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadSetting(f"{name}: {path}: not a text in UTF-8") from None

    def __call__(self) -> dict[str, Any]:
        fields = {name: field for name, field in self.settings_cls.model_fields.items() if name not in FIXED}
        values = {name: self.get_field_value(field, name)[0] for name, field in fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def load(settings: type[Settings], **values: Any) -> Settings:
    """Load settings from `values` and, for the others, from the environment. Raises BadSetting."""
    try:
        return settings(**values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name = str(first["loc"][0]).upper() if first["loc"] else "settings"
        raise BadSetting(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
