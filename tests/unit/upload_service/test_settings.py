"""The settings of object storage and of the scanner, and settings that prevent the start."""

from pathlib import Path

import pytest

from common.settings import BadSetting, load
from tests.support.factories import KEY
from tests.support.servers.certificates import make_certificate
from tests.support.tables import each
from upload_service.model import StorageKind
from upload_service.outgoing.clamd import Clamd
from upload_service.outgoing.scanners import HttpScanner, scanner_at
from upload_service.scanning.model import Scanner
from upload_service.settings import StorageSettings, UploadSettings

SECRET = "a secret that no line may hold"
NAMES = [name.upper() for name in StorageSettings.model_fields]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without settings of storage."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    return monkeypatch


def storage_settings(environment: pytest.MonkeyPatch, **settings: str) -> StorageSettings:
    for name, value in settings.items():
        environment.setenv(name, value)
    return load(StorageSettings)


def test_installers_stay_in_the_folder_by_default(environment: pytest.MonkeyPatch) -> None:
    settings = storage_settings(environment)
    assert (settings.installer_storage, settings.object_storage, settings.s3_redirect) == (
        StorageKind.FOLDER,
        None,
        False,
    )


def test_object_storage_is_configured_by_its_url(environment: pytest.MonkeyPatch) -> None:
    settings = storage_settings(
        environment,
        INSTALLER_STORAGE="s3",
        S3_URL="s3://bucket/some/prefix/",
        S3_ENDPOINT="http://minio:9000/",
        S3_REGION="eu-central-1",
        S3_ACCESS_KEY_ID="id",
        S3_SECRET_ACCESS_KEY=SECRET,
        S3_REDIRECT="true",
    )
    storage = settings.object_storage
    assert storage is not None
    assert (storage.bucket, storage.prefix, storage.endpoint) == ("bucket", "some/prefix", "http://minio:9000")
    assert (storage.region, storage.key_id, storage.secret.get_secret_value()) == ("eu-central-1", "id", SECRET)
    assert (settings.installer_storage, settings.s3_redirect) == (StorageKind.S3, True)
    assert SECRET not in repr(settings)


def test_object_storage_can_be_configured_along_with_the_folder(environment: pytest.MonkeyPatch) -> None:
    settings = storage_settings(environment, INSTALLER_STORAGE="folder", S3_URL="s3://bucket")
    assert settings.object_storage is not None
    assert settings.object_storage.prefix == ""


def test_a_private_ca_is_read_from_its_file(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "minio")
    settings = storage_settings(environment, S3_URL="s3://bucket", S3_CA_FILE=str(certificate))
    assert settings.object_storage is not None
    assert settings.object_storage.ca == certificate.read_text().strip()


@each(
    ("settings", "reason"),
    [
        ({"INSTALLER_STORAGE": "tape"}, "INSTALLER_STORAGE: "),
        ({"INSTALLER_STORAGE": "s3"}, "S3_URL: must be given where INSTALLER_STORAGE is s3"),
        ({"S3_URL": "https://bucket"}, "S3_URL: must be s3://bucket or s3://bucket/prefix"),
        ({"S3_URL": "s3://"}, "S3_URL: "),
        ({"S3_URL": "s3://Bucket"}, "S3_URL: "),
        ({"S3_URL": "s3://bucket/../other"}, "S3_URL: "),
        ({"S3_URL": "s3://bucket/some//prefix"}, "S3_URL: "),
        ({"S3_URL": "s3://bucket/a prefix"}, "S3_URL: "),
        ({"S3_ENDPOINT": "minio:9000"}, "S3_ENDPOINT: "),
        ({"S3_ENDPOINT": f"https://user:{SECRET}@minio"}, "S3_ENDPOINT: "),
        ({"S3_ENDPOINT": "https://minio/path"}, "S3_ENDPOINT: "),
        ({"S3_ENDPOINT": "http://minio:99999"}, "S3_ENDPOINT: "),
        ({"S3_ENDPOINT": "http://[::z]:9000"}, "S3_ENDPOINT: "),
        ({"S3_ENDPOINT": "unix:/minio.sock"}, "S3_ENDPOINT: "),
        ({"S3_REGION": "eu central"}, "S3_REGION: "),
        ({"S3_ACCESS_KEY_ID": "id"}, "S3_SECRET_ACCESS_KEY: is given with S3_ACCESS_KEY_ID, or neither is"),
        ({"S3_SECRET_ACCESS_KEY": SECRET}, "S3_SECRET_ACCESS_KEY: "),
        ({"S3_REDIRECT": "perhaps"}, "S3_REDIRECT: "),
        ({"S3_CA": "-----BEGIN CERTIFICATE-----"}, "S3_CA: must have certificates in PEM"),
        ({"S3_CA_FILE": "/nowhere/ca.pem"}, "S3_CA_FILE: /nowhere/ca.pem: "),
    ],
)
def test_an_invalid_or_missing_setting_is_reported_in_one_line(
    environment: pytest.MonkeyPatch, settings: dict[str, str], reason: str
) -> None:
    with environment.context() as patched, pytest.raises(BadSetting) as caught:
        storage_settings(patched, **settings)
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def scanner_url(url: str) -> str | None:
    settings = {"internal_key": KEY, "download_key": KEY, "installers": "/installers"}
    return load(UploadSettings, **settings, scanner_url=url).scanner_url


@each(
    ("url", "scanner"),
    [
        ("tcp://clamd:3310", Clamd(host="clamd", port=3310)),
        ("tcp://[::1]:3310", Clamd(host="::1", port=3310)),
        ("unix:///run/clamd.sock", Clamd(path="/run/clamd.sock")),
        ("https://scanner.example.com/scan?depth=2", HttpScanner("https://scanner.example.com/scan?depth=2")),
    ],
)
def test_the_scanner_is_the_one_of_its_address(url: str, scanner: Scanner) -> None:
    assert scanner_at(scanner_url(url) or "") == scanner


@each(
    "url",
    ["clamd:3310", "tcp://clamd", "tcp://clamd:70000", "tcp://clamd:0", "unix:run", "ftp://x", "http://u:p@scanner/"],
)
def test_an_address_of_no_scanner_prevents_the_start(url: str) -> None:
    with pytest.raises(BadSetting, match="SCANNER_URL"):
        scanner_url(url)
