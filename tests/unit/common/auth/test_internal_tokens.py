"""A service identifies its caller by a short-lived token for this service, one operation and one tenant."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest

from common.auth.internal_tokens import (
    LIFETIME,
    REUSE_PERIOD,
    Caller,
    Callers,
    Deployment,
    Kind,
    Signer,
    UntrustedCaller,
    sign,
)
from common.auth.roles import ADMINISTRATOR, MOST_PATTERNS, TOTAL_LIMIT, PermissionMissing, Role
from common.auth.signing import ALGORITHM, Keys
from common.errors import NotAuthenticated
from common.tenants import RING_LIMIT, Tenant, VersionKey
from tests.support.clock import Clock
from tests.support.factories import KEY, KEYS, UNKNOWN_ID, make_caller, make_tenant
from tests.support.tables import each

OTHER_KEY = "another-key-for-tests-long-enough-too"
TENANT = make_tenant(tenant_id="acme")
SITE_URL = "https://graz.pkg.example.com"
TARGET = {"service": "catalog_service", "operation": "add_package", "tenant_id": "acme"}


def token_for(caller: Caller | None = None, key: str = KEY) -> str:
    return sign(key, caller or make_caller(TENANT), service="catalog_service", operation="add_package")


def verify(keys: Keys, token: str, *, service: str, operation: str, tenant_id: str) -> Caller:
    """The caller of a token that the service has not seen before."""
    return Callers(keys, service=service).verify(token, operation=operation, tenant_id=tenant_id)


def forged(changes: Mapping[str, Any], *, key: str = KEY, algorithm: str = ALGORITHM) -> str:
    """A token with other claims than `sign` makes; None removes a claim."""
    claims = jwt.decode(token_for(), KEY, algorithms=[ALGORITHM], audience="catalog_service")
    forged_claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    return jwt.encode(forged_claims, key, algorithm=algorithm)


@each(
    "caller",
    [
        Caller(TENANT, ip="2001:db8::1", base_url="https://packages.example.com/acme"),
        Caller(TENANT).as_administrator("ada", "51", ADMINISTRATOR),
        Caller(TENANT).as_administrator("ada", "51", (Role.VIEWER, Role.AUDITOR)),
        Caller(TENANT).as_administrator("ada", "51", ()),
        Caller(TENANT, deployment=Deployment.SINGLE).as_client("c1"),
        Caller(TENANT, ip="2001:db8::1").as_client("", "pilot"),
        Caller(TENANT, site_url=SITE_URL),
        Caller(TENANT, site_url=SITE_URL).as_client("c1", "pilot"),
        Caller(TENANT, site_url=SITE_URL).as_administrator("ada", "51", ADMINISTRATOR),
        Caller.service(make_tenant(tenant_id="acme", storage_quota=7, max_clients=3, version_key=VersionKey.INSTALLER)),
        Caller(make_tenant(tenant_id="acme", strict_installers=True)).as_administrator("ada", "52", ADMINISTRATOR),
    ],
    ids=lambda caller: caller.kind,
)
def test_a_caller_is_received_unchanged(caller: Caller) -> None:
    assert verify(KEYS, token_for(caller), **TARGET) == caller


def test_fields_for_the_gateway_only_are_not_sent() -> None:
    tenant = make_tenant(tenant_id="acme", client_authentication=True, source_agreements="[1]", login_name="Acme")

    assert verify(KEYS, token_for(Caller(tenant)), **TARGET).tenant == Tenant("acme")


def test_an_identified_caller_stays_at_its_site() -> None:
    visitor = Caller(TENANT, site_url=SITE_URL)

    assert visitor.as_client("c1", "pilot").site_url == SITE_URL
    assert visitor.as_administrator("ada", "51", ADMINISTRATOR).site_url == SITE_URL


def test_a_caller_of_the_release_before_has_no_site() -> None:
    assert verify(KEYS, forged({"site_url": None}), **TARGET).site_url == ""


def test_the_longest_token_fits_a_header() -> None:
    tenant = Tenant("a" * 63, storage_quota=2**62, max_clients=2**31)
    pattern = "p" * (TOTAL_LIMIT // MOST_PATTERNS - 6)
    patterns = tuple(f"{pattern}{number}" for number in range(10, 10 + MOST_PATTERNS))
    base_url = f"https://{'h' * 253}:65535/client/api/{tenant.tenant_id}"
    site_url = f"https://{'h' * 253}:65535"
    visitor = Caller(tenant, ip="2001:db8:" + ":".join(["ffff"] * 6), base_url=base_url, site_url=site_url)
    token = visitor.as_administrator("token:" + "\u00fc" * 64, "", tuple(Role), patterns, "\u00fc" * 128)
    user = visitor.as_administrator("\u00fc" * 128, "s" * 64, tuple(Role))

    assert TOTAL_LIMIT - 2 * MOST_PATTERNS < len(json.dumps(patterns)) <= TOTAL_LIMIT
    for caller in (token, user, visitor.as_client(UNKNOWN_ID, "r" * RING_LIMIT)):
        assert len(sign(KEY, caller, service="client_registry", operation="delete_blacklist_group")) < 8190


def seconds_from_now(seconds: int) -> int:
    """The time in this many seconds."""
    return int(time.time()) + seconds


# Tokens are created at use, because one of the future is valid a minute later.
BAD: dict[str, Callable[[], str]] = {
    "none": lambda: "",
    "nonsense": lambda: "nonsense",
    "not ASCII": lambda: "\udcff.\udcff.\udcff",
    "another key": lambda: token_for(key=OTHER_KEY),
    "expired": lambda: forged({"iat": seconds_from_now(-2 * LIFETIME), "exp": seconds_from_now(-LIFETIME)}),
    "of the future": lambda: forged({"iat": seconds_from_now(LIFETIME)}),
    "no expiry": lambda: forged({"exp": None}),
    "no time of issue": lambda: forged({"iat": None}),
    "no service": lambda: forged({"aud": None}),
    "no operation": lambda: forged({"op": None}),
    "no tenant": lambda: forged({"tenant": None}),
    "a tenant that is no object": lambda: forged({"tenant": "acme"}),
    "an unknown kind": lambda: forged({"kind": "root"}),
    "a kind that is no word": lambda: forged({"kind": {}}),
    "an unknown role": lambda: forged({"kind": "administrator", "roles": ["root"]}),
    "roles that are no list": lambda: forged({"kind": "administrator", "roles": 7}),
    "an unknown deployment": lambda: forged({"deployment": "both"}),
}


@each("kind", BAD)
def test_an_invalid_token_authenticates_no_caller(kind: str) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        verify(KEYS, BAD[kind](), **TARGET)

    assert refused.value.detail == "This service answers the gateway only."


def test_a_token_of_another_algorithm_authenticates_no_caller() -> None:
    long_key = KEY * 2  # HS512 requires 64 bytes

    with pytest.raises(NotAuthenticated):
        verify(Keys(long_key), forged({}, key=long_key, algorithm="HS512"), **TARGET)


def test_only_a_user_has_roles() -> None:
    for kind in set(Kind) - {Kind.ADMINISTRATOR}:
        assert verify(KEYS, forged({"kind": kind, "roles": ["administrator"]}), **TARGET).roles == ()


@each("algorithm", ["none", "None", "NONE", "nOnE", ""])
def test_an_unsigned_token_authenticates_no_caller(algorithm: str) -> None:
    _, claims, _ = token_for().split(".")
    header = base64.urlsafe_b64encode(orjson.dumps({"alg": algorithm, "typ": "JWT"})).rstrip(b"=").decode()

    with pytest.raises(NotAuthenticated):
        verify(KEYS, f"{header}.{claims}.", **TARGET)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(time.time())
    monkeypatch.setattr("common.auth.internal_tokens.time", clock)
    return clock


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key file for tests; a change is noticed at once."""
    monkeypatch.setattr("common.auth.signing.RELOAD_INTERVAL", 0.0)
    file = tmp_path / "key"
    file.write_text(KEY)
    return file


def test_a_token_is_reused_for_a_caller_and_operation_for_a_while(clock: Clock) -> None:
    signer, caller = Signer(KEYS, service="catalog_service"), make_caller(TENANT)
    first = signer.sign(caller, "add_package")

    clock.now += REUSE_PERIOD - 1
    assert signer.sign(replace(caller), "add_package") == first

    clock.now += 1
    assert signer.sign(caller, "add_package") != first
    assert signer.sign(caller, "delete_package") != signer.sign(caller, "add_package")
    assert REUSE_PERIOD < LIFETIME / 2


@each(
    "other",
    [
        make_caller(make_tenant(tenant_id="acme", storage_quota=7)),
        make_caller(make_tenant(tenant_id="another")),
        make_caller(TENANT, username="ada"),
        make_caller(TENANT, ip="192.0.2.1"),
        Caller(TENANT).as_client("c1"),
    ],
    ids=["other settings", "another tenant", "another user", "another address", "a client"],
)
def test_another_caller_gets_another_token(other: Caller) -> None:
    signer = Signer(KEYS, service="catalog_service")
    signer.sign(make_caller(TENANT), "add_package")

    token = signer.sign(other, "add_package")

    assert verify(KEYS, token, **{**TARGET, "tenant_id": other.tenant_id}) == other


def test_a_token_is_not_signed_with_the_previous_key(key_file: Path) -> None:
    signer, caller = Signer(Keys(key_file), service="catalog_service"), make_caller(TENANT)
    signer.sign(caller, "add_package")
    key_file.write_text(f"{OTHER_KEY} {KEY}")

    assert verify(Keys(OTHER_KEY), signer.sign(caller, "add_package"), **TARGET) == caller


def test_a_token_is_valid_for_one_operation_of_a_service_and_tenant_only() -> None:
    callers, token = Callers(KEYS, service="catalog_service"), token_for()
    with pytest.raises(UntrustedCaller):
        verify(KEYS, token, **{**TARGET, "service": "upload_service"})
    for _ in range(2):  # A verified token is cached.
        for operation, tenant_id in (("delete_package", "acme"), ("add_package", "another"), ("", "acme")):
            with pytest.raises(UntrustedCaller):
                callers.verify(token, operation=operation, tenant_id=tenant_id)
        assert callers.verify(token, operation="add_package", tenant_id="acme") == make_caller(TENANT)


@each("uploader", ["", "admin", "token:other", "token:CI"])
def test_a_restricted_token_uses_no_upload_that_it_did_not_begin(uploader: str) -> None:
    """Also none without an uploader: nobody knows who began it."""
    token = Caller(TENANT).as_administrator("token:ci", "", ADMINISTRATOR, ("Acme.*",))
    token.require_uploader("token:ci")
    with pytest.raises(PermissionMissing):
        token.require_uploader(uploader)
    Caller(TENANT).as_administrator("token:ci", "", ADMINISTRATOR).require_uploader(uploader)
