"""The client address of a request: forwarding headers count only from trusted proxies."""

from ipaddress import ip_address, ip_network
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from common.auth.internal_tokens import Deployment
from common.errors import InvalidRequest
from common.tenants import Network
from gateway.routing import base_url, caller_address, is_https, is_same_origin
from gateway.settings import GatewaySettings
from tests.support.factories import KEYS
from tests.support.tables import each

PROXIES: tuple[Network, ...] = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
CALLER, PROXY, OTHER_PROXY = "203.0.113.9", "10.0.0.1", "10.0.0.2"


def sent_from(peer: str | None, *headers: tuple[str, str], scheme: str = "http") -> web.Request:
    transport = Mock()
    values: dict[str, Any] = {"peername": (peer, 1234) if peer else "", "sslcontext": scheme == "https" or None}
    transport.get_extra_info.side_effect = lambda name, default=None: values.get(name, default)
    return make_mocked_request("GET", "/acme/test", CIMultiDict(headers), transport=transport)


def settings(**more: Any) -> GatewaySettings:
    key = KEYS
    return GatewaySettings(internal_key=key, session_key=key, trusted_proxies=PROXIES, **more)


def caller_of(peer: str | None, *forwarded_for: str) -> str:
    headers = [("X-Forwarded-For", value) for value in forwarded_for]
    return str(caller_address(sent_from(peer, *headers), PROXIES))


@each(
    ("peer", "hops", "client"),
    [
        # Without a proxy, the socket has the address.
        (CALLER, [], CALLER),
        (CALLER, ["198.51.100.1"], CALLER),
        (CALLER, [PROXY], CALLER),
        # Behind a proxy, the hop before it is the client.
        (PROXY, [CALLER], CALLER),
        (PROXY, [f"198.51.100.1, {CALLER}"], CALLER),
        (PROXY, [f"198.51.100.1, {CALLER}, {OTHER_PROXY}"], CALLER),
        (PROXY, ["198.51.100.1", CALLER, OTHER_PROXY], CALLER),
        # If all hops are proxies, the farthest is the client.
        (PROXY, [], PROXY),
        (PROXY, [f"10.0.0.3, {OTHER_PROXY}"], "10.0.0.3"),
        # An IPv4 address on an IPv6 socket is IPv4.
        (f"::ffff:{PROXY}", [CALLER], CALLER),
        (PROXY, [f"::ffff:{CALLER}, ::ffff:{OTHER_PROXY}"], CALLER),
        (f"::ffff:{CALLER}", ["198.51.100.1"], CALLER),
        ("fd00::1", ["2001:db8::9"], "2001:db8::9"),
        ("fe80::1%eth0", [], "fe80::1"),
    ],
)
def test_hops_count_from_trusted_proxies_only(peer: str, hops: list[str], client: str) -> None:
    assert caller_of(peer, *hops) == client


@each("nonsense", ["", "unknown", "203.0.113.9:80", "_hidden", "203.0.113", "é", "1.2.3.4 5.6.7.8"])
def test_an_invalid_hop_ends_the_chain(nonsense: str) -> None:
    assert caller_of(PROXY, f"{CALLER}, {nonsense}") == PROXY
    assert caller_of(PROXY, f"{CALLER}, {nonsense}, {OTHER_PROXY}") == OTHER_PROXY


def test_a_unix_socket_is_this_machine() -> None:
    assert caller_address(sent_from(None, ("X-Forwarded-For", CALLER)), PROXIES) == ip_address("127.0.0.1")
    local = (ip_network("127.0.0.0/8"),)
    assert caller_address(sent_from(None, ("X-Forwarded-For", CALLER)), local) == ip_address(CALLER)


def test_the_base_url_has_the_host_of_the_request() -> None:
    request = sent_from(CALLER, ("Host", "packages.example.com:8080"), ("X-Forwarded-Host", "evil.example"))
    assert base_url(request, settings(), "acme") == "http://packages.example.com:8080/acme"
    single = settings(deployment=Deployment.SINGLE)
    assert base_url(request, single, "acme") == "http://packages.example.com:8080/client/api"


def test_the_base_url_has_the_host_that_a_trusted_proxy_forwards() -> None:
    forwarded = ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "packages.example.com")
    request = sent_from(PROXY, ("Host", "gateway:8080"), *forwarded)
    assert base_url(request, settings(), "acme") == "https://packages.example.com/acme"
    assert is_https(base_url(request, settings(), "acme"))
    request = sent_from(CALLER, ("Host", "gateway:8080"), *forwarded)
    assert base_url(request, settings(), "acme") == "http://gateway:8080/acme"


def test_a_public_url_overrides_the_headers() -> None:
    request = sent_from(PROXY, ("Host", "evil.example/"), ("X-Forwarded-Host", "evil.example"))
    assert base_url(request, settings(public_url="https://p.example"), "acme") == "https://p.example/acme"


@each(
    "host",
    [
        "",
        "evil.example/x",
        "a b",
        "user@evil.example",
        "a:b",
        "a:0",
        "a:65536",
        "[::1",
        "[::::]",
        "[1.2.3.4]",
        "a#b",
        "a\\b",
        "é",
        "<x>",
    ],
)
def test_an_invalid_host_or_scheme_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest):
        base_url(sent_from(PROXY, ("Host", "ok"), ("X-Forwarded-Proto", "javascript")), settings(), "acme")
    for request in (sent_from(CALLER, ("Host", host)), sent_from(PROXY, ("Host", "ok"), ("X-Forwarded-Host", host))):
        with pytest.raises(InvalidRequest):
            base_url(request, settings(), "acme")


@each(
    ("headers", "is_accepted"),
    [
        ({}, True),
        ({"Origin": "http://gateway:8080"}, True),
        ({"Origin": "https://gateway:8080"}, True),  # A proxy ended TLS.
        ({"Origin": "https://packages.example.com"}, True),
        ({"Origin": "http://gateway"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "null", "Host": ""}, False),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, True),  # A proxy changed the host.
        ({"Origin": "http://gateway:8080", "Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_a_form_is_accepted_from_the_own_origin_only(headers: dict[str, str], is_accepted: bool) -> None:
    request = sent_from(CALLER, *{"Host": "gateway:8080", **headers}.items())
    assert is_same_origin(request, "https://packages.example.com/acme") is is_accepted
