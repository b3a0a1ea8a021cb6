"""Settings from the environment and from files, and the reports of invalid ones."""

from pathlib import Path

import pytest

from auth_service.settings import AuthSettings
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from common.auth.signing import Keys
from common.http.server import Service, run
from common.settings import (
    BadSetting,
    Key,
    MongoUrl,
    RabbitUrl,
    RedisUrl,
    ServiceSettings,
    ServiceUrl,
    load,
    of_internal_key,
)
from gateway.settings import GatewaySettings
from tests.support.tables import each
from upload_service.settings import UploadSettings

SECRET = "a-secret-of-the-operator,32-letters-and-more"
SHORT = "too-short-a-secret"


class SampleSettings(ServiceSettings):
    """The settings of a service."""

    session_key: Key
    some_service_key: Key = of_internal_key()
    timeout: int = 3
    database: str = "some"
    mongo_url: MongoUrl = "mongodb://127.0.0.1"
    redis_url: RedisUrl = "redis://127.0.0.1"
    rabbitmq_url: RabbitUrl = "amqp://127.0.0.1"
    other_service_url: ServiceUrl = "http://127.0.0.1"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with the required settings."""
    for name in SampleSettings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(f"{name.upper()}_FILE", raising=False)
    monkeypatch.setenv("INTERNAL_KEY", SECRET)
    monkeypatch.setenv("SESSION_KEY", SECRET)
    return monkeypatch


def test_settings_come_from_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LISTEN", "0.0.0.0:9000")
    environment.setenv("TIMEOUT", "7")
    environment.setenv("SESSION_KEY", f"{SECRET}-2 {SECRET}")

    settings = load(SampleSettings)

    assert (settings.listen, settings.timeout) == ("0.0.0.0:9000", 7)
    assert settings.session_key.accepted == (f"{SECRET}-2", SECRET)
    environment.setenv("TIMEOUT", "")
    assert load(SampleSettings).timeout == 3


@pytest.mark.parametrize(("variable", "expected"), [(None, "file"), ("", "file"), (SECRET, "variable")])
def test_a_file_has_the_value_of_a_variable_that_is_not_set(
    environment: pytest.MonkeyPatch, tmp_path: Path, variable: str | None, expected: str
) -> None:
    (tmp_path / "key").write_text(f"{SECRET}-from-a-file\n")
    environment.setenv("SESSION_KEY_FILE", str(tmp_path / "key"))
    if variable is None:
        environment.delenv("SESSION_KEY")
    else:
        environment.setenv("SESSION_KEY", variable)

    assert load(SampleSettings).session_key.signing == (SECRET if expected == "variable" else f"{SECRET}-from-a-file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "SESSION_KEY_FILE: {}: No such file or directory"),
        (b"\xff\xfe" * 20, "SESSION_KEY_FILE: {}: not a text in UTF-8"),
    ],
)
def test_an_unreadable_file_is_named(
    environment: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "key"
    if content:
        file.write_bytes(content)
    environment.delenv("SESSION_KEY")
    environment.setenv("SESSION_KEY_FILE", str(file))

    with pytest.raises(BadSetting) as bad:
        load(SampleSettings)

    assert str(bad.value) == message.format(file)


@pytest.mark.parametrize("name", ["DATABASE", "DATABASE_FILE"])
def test_the_name_of_a_database_is_not_shown(environment: pytest.MonkeyPatch, name: str, tmp_path: Path) -> None:
    (tmp_path / "database").write_text("other")
    environment.setenv(name, str(tmp_path / "database"))

    assert load(SampleSettings).database == "some"
    assert SampleSettings(database="of a test").database == "of a test"  # type: ignore[call-arg]  # the environment has the keys


@pytest.mark.parametrize(
    "text", [None, SHORT, f"{SECRET} {SHORT}", f"{SECRET} {SECRET}-2 {SECRET}-3", "with white space every ten letters"]
)
@pytest.mark.parametrize("source", ["variable", "file"])
def test_missing_or_invalid_keys_stop_the_start(
    environment: pytest.MonkeyPatch, tmp_path: Path, source: str, text: str | None
) -> None:
    environment.delenv("SESSION_KEY")
    if text and source == "file":
        (tmp_path / "key").write_text(text)
        environment.setenv("SESSION_KEY_FILE", str(tmp_path / "key"))
    elif text:
        environment.setenv("SESSION_KEY", text)

    with pytest.raises(BadSetting) as bad:
        load(SampleSettings)

    assert str(bad.value).startswith("SESSION_KEY: must be a key of 32 characters" if text else "SESSION_KEY: ")
    assert "\n" not in str(bad.value)
    assert not any(part in str(bad.value) for part in (text or "").split() if len(part) > 10)


def test_the_internal_key_is_the_default_key_of_every_service(environment: pytest.MonkeyPatch) -> None:
    assert load(SampleSettings).some_service_key.signing == SECRET
    environment.setenv("SOME_SERVICE_KEY", f"{SECRET}-of-some")
    assert load(SampleSettings).some_service_key.signing == f"{SECRET}-of-some"
    environment.delenv("INTERNAL_KEY")
    assert load(SampleSettings).some_service_key.signing == f"{SECRET}-of-some"
    environment.delenv("SOME_SERVICE_KEY")
    with pytest.raises(BadSetting, match=r"^SOME_SERVICE_KEY: must be given, or INTERNAL_KEY for all services$"):
        load(SampleSettings)


def test_every_key_of_every_service_has_a_minimum_length(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kinds = (AuthSettings, CatalogSettings, GatewaySettings, RegistrySettings, UploadSettings)
    for kind in kinds:
        names = [name for name, field in kind.model_fields.items() if field.annotation is Keys]
        others = {"s3_secret_access_key", "audit_key"}
        assert {name for name in kind.model_fields if name.endswith("_key")} - others == set(names)
        for name in names:
            values = {**dict.fromkeys([*names, "audit_key"], SECRET), "installers": tmp_path, name: SHORT}
            with pytest.raises(BadSetting, match=rf"^{name.upper()}: must be a key of 32"):
                load(kind, **values)


@each("keys", [SHORT, f"{SECRET} {SHORT}", " "], ids=["one", "the second", "none"])
@pytest.mark.usefixtures("environment")
def test_every_key_of_the_audit_log_has_a_minimum_length(keys: str) -> None:
    with pytest.raises(BadSetting, match=r"^AUDIT_KEY: must be keys of at least 32"):
        load(AuthSettings, internal_key=SECRET, session_key=SECRET, audit_key=keys)


@each(
    ("name", "text"),
    [
        ("LISTEN", "127.0.0.1:0"),
        ("LISTEN", "[::1]:65535"),
        ("LISTEN", "unix:/run/some.sock"),
        ("MONGO_URL", "mongodb://user:pass%40word@one:1,two:2,[::1]:3/?replicaSet=rs0"),
        ("MONGO_URL", "mongodb://%2Frun%2Fmongod.sock/?directConnection=true"),
        ("MONGO_URL", "mongodb+srv://cluster.example.com"),
        ("REDIS_URL", "rediss://:password@redis:6379/0"),
        ("REDIS_URL", "unix:///run/redis.sock"),
        ("RABBITMQ_URL", "amqps://guest:guest@rabbitmq:5671/vhost"),
        ("OTHER_SERVICE_URL", "https://other:8443"),
        ("OTHER_SERVICE_URL", "unix:/run/other.sock"),
    ],
)
def test_a_listen_address_is_read_unchanged(environment: pytest.MonkeyPatch, name: str, text: str) -> None:
    with environment.context() as patched:
        patched.setenv(name, text)
        assert getattr(load(SampleSettings), name.lower()) == text


@each(
    ("name", "text"),
    [
        ("TIMEOUT", "three"),
        ("LOG_LEVEL", "loud"),
        ("LISTEN", "abc"),
        ("LISTEN", "127.0.0.1:99999"),
        ("LISTEN", "127.0.0.1:http"),
        ("LISTEN", "::1:8080"),
        ("LISTEN", "unix:"),
        ("MONGO_URL", "foo"),
        ("MONGO_URL", "mongodb://"),
        ("MONGO_URL", "mongodb://one:1,two:99999"),
        ("REDIS_URL", "foo"),
        ("REDIS_URL", "http://redis:6379"),
        ("REDIS_URL", "redis://redis:99999"),
        ("RABBITMQ_URL", "foo://"),
        ("RABBITMQ_URL", "amqp://"),
        ("OTHER_SERVICE_URL", "other:8080"),
        ("OTHER_SERVICE_URL", "unix:other.sock"),
    ],
)
def test_an_invalid_value_is_named_and_not_shown(environment: pytest.MonkeyPatch, name: str, text: str) -> None:
    with environment.context() as patched:
        patched.setenv(name, text)
        with pytest.raises(BadSetting) as bad:
            load(SampleSettings)

    assert str(bad.value).startswith(f"{name}: ")
    assert "\n" not in str(bad.value)
    assert text not in str(bad.value).partition(": ")[2].replace("unix:/path", "")


def test_a_key_is_not_shown_with_the_settings() -> None:
    assert SECRET not in repr(load(SampleSettings))


def test_a_service_does_not_start_with_an_invalid_setting(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SESSION_KEY", SHORT)

    with pytest.raises(SystemExit) as end:
        run(Service("some_service", SampleSettings, lambda _: pytest.fail("the service was made")))

    assert str(end.value).startswith("some_service: SESSION_KEY: ")
    assert SHORT not in str(end.value)
