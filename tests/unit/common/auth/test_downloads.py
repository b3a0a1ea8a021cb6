"""Download URLs: through the gateway, or directly to upload_service."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from client_registry.releases.store import Installer, Release
from client_registry.routes import version_body
from client_registry.settings import RegistrySettings
from common.auth.downloads import check_download, download_url
from common.errors import Forbidden
from tests.support.factories import KEYS, make_caller, make_tenant
from tests.support.tables import each

CALLER = make_caller(make_tenant(tenant_id="acme"), base_url="https://packages.example.com/client/api")
PAST = "https://files.example.com"


@each(("direct", "base"), [("", "https://packages.example.com/client/api"), (PAST, "https://files.example.com/acme")])
def test_a_url_bypasses_the_gateway_if_a_direct_url_is_configured(direct: str, base: str) -> None:
    address = download_url(CALLER, KEYS, direct=direct, server_filename="one.exe", file_name="setup.exe", expires=1)

    assert address.startswith(f"{base}/download/one.exe/setup.exe?")


def test_the_url_of_the_client_program_bypasses_the_gateway_too() -> None:
    settings = RegistrySettings(internal_key=KEYS, client_token_key=KEYS, download_key=KEYS, download_url=PAST)
    release = Release("uid", "1.0.0.0", datetime.now(UTC), Installer("one.exe", 1, "00"))

    answer = version_body(release, CALLER, settings, 0)

    assert urlsplit(answer["INSTALLER_URL"]).netloc == "files.example.com"


def test_a_url_is_valid_until_its_expiry_and_no_second_longer() -> None:
    address = download_url(CALLER, KEYS, direct="", server_filename="one.exe", file_name="setup.exe", expires=1000)
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    signed = {"tenant_id": "acme", "server_filename": "one.exe", "file_name": "setup.exe", **query}

    check_download(KEYS, **signed, now=999.9)

    with pytest.raises(Forbidden, match="expired"):
        check_download(KEYS, **signed, now=1000)
