"""Keys that replace others without a refused signature, and signed download addresses."""

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from structlog.testing import capture_logs

from client_registry.releases.store import Installer, Release
from client_registry.routes import version_body
from client_registry.settings import RegistrySettings
from common.auth import signing
from common.auth.downloads import SITE_PERIOD, check_download, download_url, is_for_site, site_address, site_expiry
from common.auth.signing import Keys
from common.errors import Forbidden
from tests.support.factories import KEYS, make_caller, make_tenant
from tests.support.samples.jwt_forgeries import flip_bit
from tests.support.tables import each

OLD, NEW, STRANGE = (f"{name}-key-of-thirty-two-letters-and-more" for name in ("the-old", "the-new", "a-strange"))
CLAIMS = {"aud": "tests", "iat": 1, "exp": 32503680000, "jti": "1"}


def token(key: str) -> str:
    return jwt.encode(CLAIMS, key, algorithm=signing.ALGORITHM)


@pytest.fixture
def no_reload_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed file is noticed at the next use."""
    monkeypatch.setattr(signing, "RELOAD_INTERVAL", 0.0)


def test_the_first_key_signs() -> None:
    keys = Keys(f"{NEW}\n{OLD}\n")

    assert keys.signing == NEW
    assert keys.digests("text")[0] == Keys(NEW).digests("text")[0]


@each("key", [OLD, NEW])
def test_signatures_of_both_keys_are_accepted(key: str) -> None:
    keys = Keys(f"{NEW} {OLD}")

    assert keys.verify_digest("text", Keys(key).digests("text")[0])
    assert keys.verify_token(token(key), audience="tests", required=["jti"]) == CLAIMS


def test_a_signature_of_neither_key_is_refused() -> None:
    keys = Keys(f"{NEW} {OLD}")

    assert not keys.verify_digest("text", Keys(STRANGE).digests("text")[0])
    assert not keys.verify_digest("another text", Keys(NEW).digests("text")[0])
    with pytest.raises(jwt.InvalidSignatureError):
        keys.verify_token(token(STRANGE), audience="tests", required=["jti"])


def test_no_bit_of_a_token_can_be_changed() -> None:
    keys, parts = Keys(OLD), token(OLD).split(".")
    for number, part in enumerate(parts):
        for bit in range(len(part) * 6 // 8 * 8):
            altered = [*parts[:number], flip_bit(part, bit), *parts[number + 1 :]]
            with pytest.raises((jwt.InvalidTokenError, ValueError)):
                keys.verify_token(".".join(altered), audience="tests", required=["jti"])


def test_a_token_of_the_second_key_needs_the_same_claims() -> None:
    with pytest.raises(jwt.InvalidAudienceError):
        Keys(f"{NEW} {OLD}").verify_token(token(OLD), audience="others", required=["jti"])


@pytest.mark.usefixtures("no_reload_interval")
def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(OLD)
    keys = Keys(file)
    assert keys.accepted == (OLD,)

    for text, accepted in ((f"{OLD}\n{NEW}", (OLD, NEW)), (f"{NEW}\n{OLD}", (NEW, OLD)), (NEW, (NEW,))):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)
        assert keys.accepted == accepted


@pytest.mark.usefixtures("no_reload_interval")
@pytest.mark.parametrize("text", ["", "short", f"{OLD} {NEW} {STRANGE}", b"\xff" * 40, None])
def test_a_file_without_keys_changes_nothing_and_is_logged_once(tmp_path: Path, text: str | bytes | None) -> None:
    file = tmp_path / "key"
    file.write_text(OLD)
    keys = Keys(file)
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    with capture_logs() as logs:
        assert [keys.accepted for _ in range(3)] == [(OLD,)] * 3

    assert [line["event"] for line in logs] == ["key_file_not_taken"]


def test_keys_are_not_shown() -> None:
    assert OLD not in f"{Keys(OLD)} {Keys(OLD)!r}"


CALLER = make_caller(make_tenant(tenant_id="acme"), base_url="https://packages.example.com/client/api")
PAST = "https://files.example.com"
DAY = 86400  # seconds


@each(("direct", "base"), [("", "https://packages.example.com/client/api"), (PAST, "https://files.example.com/acme")])
def test_a_url_bypasses_the_gateway_if_a_direct_url_is_configured(direct: str, base: str) -> None:
    address = download_url(CALLER, KEYS, direct=direct, server_filename="one.exe", file_name="setup.exe", expires=1)

    assert address.startswith(f"{base}/download/one.exe/setup.exe?")


@each("direct", ["", PAST])
def test_the_url_of_a_site_differs_only_in_its_host(direct: str) -> None:
    address = download_url(CALLER, KEYS, direct=direct, server_filename="one.exe", file_name="setup.exe", expires=1)

    at_site = urlsplit(site_address(address, "https://graz.example.com:8443"))

    assert (at_site.scheme, at_site.netloc) == ("https", "graz.example.com:8443")
    assert at_site[2:] == urlsplit(address)[2:]


def test_the_expiry_at_a_site_is_the_same_for_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    def expiry(now: int) -> int:
        monkeypatch.setattr("time.time", lambda: now)
        return site_expiry(2 * DAY)

    week = 10 * SITE_PERIOD
    assert expiry(week - 2 * DAY) == expiry(week - SITE_PERIOD - 2 * DAY + 1) == week
    assert expiry(week - 2 * DAY + 1) == week + SITE_PERIOD
    assert is_for_site(str(week))
    assert not is_for_site(str(week + 1))


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
