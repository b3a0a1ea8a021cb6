"""Targets: the route and the origin of a request."""

from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address, ip_network
from urllib.parse import quote, urlsplit

from yarl import URL

from catalog_service.model.installers import parse_address
from common.auth.internal_tokens import Deployment
from common.errors import InvalidField, Problem
from common.tenants import bounds, contains, is_public, is_tenant_id, parse_network, plain_address
from gateway.routing import Target, base_url, caller_address, is_https
from gateway.settings import GatewaySettings
from tests.fuzz.requests import blame, request
from tests.support.factories import KEYS

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
SETTINGS = GatewaySettings(internal_key=KEYS, session_key=KEYS, trusted_proxies=PROXIES)
PROXY, STRANGER = "10.0.0.1", "203.0.113.9"


def address(data: bytes) -> None:
    """A request line is an operation whose parts cannot lead elsewhere, or it is refused."""
    method, _, path = data.decode(errors="surrogateescape").partition(" ")
    for deployment in Deployment:
        try:
            target = Target.parse(method, path, deployment, "only")
            target.check_complete()
        except Problem as problem:
            blame(problem)
            continue
        assert all(part not in {"", ".", ".."} and not set("/\\\0\r\n") & set(part) for part in target.segments)
        assert target.operation.matches(target.segments)
        assert target.operation.method == ("GET" if method == "HEAD" else method)
        prefix = "client/api" if deployment is Deployment.SINGLE else quote(target.tenant_id, safe="")
        again = "/".join(quote(segment, safe="") for segment in target.segments)
        assert Target.parse(method, f"/{prefix}/{again}", deployment, "only") == replace(target, is_alias=False)


def origin(data: bytes) -> None:
    """Without a trusted proxy the socket's address counts; forged hops change nothing.

    Each line of an input is one X-Forwarded-For.
    """
    lines = data.decode(errors="surrogateescape").split("\n")
    headers = [("X-Forwarded-For", line) for line in lines]
    assert caller_address(request(headers, peer=STRANGER), PROXIES) == ip_address(STRANGER)
    address = caller_address(request(headers, peer=PROXY), PROXIES)
    more = [("X-Forwarded-For", f"198.51.100.7, {lines[0]}"), *headers[1:]]
    if caller_address(request(more, peer=PROXY), PROXIES) != address:
        hops = [hop.strip() for hop in ",".join(lines).split(",")]
        addresses = [plain_address(ip_address(hop)) for hop in hops]
        assert all(any(hop in proxy for proxy in PROXIES) for hop in addresses), "a hop outvoted a proxy"


def host(data: bytes) -> None:
    """The advertised base URL consists of a valid host only.

    The lines of an input: the headers Host, X-Forwarded-Host and X-Forwarded-Proto.
    """
    values = data.decode(errors="surrogateescape").split("\n")
    headers = list(zip(("Host", "X-Forwarded-Host", "X-Forwarded-Proto"), values, strict=False))
    for peer in (PROXY, STRANGER):
        try:
            base = base_url(request(headers, peer=peer), SETTINGS, "acme")
        except Problem as problem:
            blame(problem)
            continue
        read = urlsplit(base)
        assert (read.path, read.query, read.fragment, read.username) == ("/acme", "", "", None)
        assert read.hostname
        assert read.port is None or read.port >= 0
        assert is_https(base) is (read.scheme == "https")
        assert peer == PROXY or read.netloc == values[0]


def external(data: bytes) -> None:
    """An accepted external URL is stored unchanged, and every parser reads the same public host."""
    text = data.decode(errors="surrogateescape")
    with suppress(InvalidField):
        assert parse_address(text) == text
        read, other = urlsplit(text), URL(text)
        assert (read.scheme, read.username, read.password, read.fragment) == ("https", None, None, "")
        assert (other.scheme, other.raw_user, other.raw_fragment) == ("https", None, "")
        assert (read.port or 443) == other.port
        assert read.hostname
        assert other.raw_host
        try:
            assert is_public(ip_address(read.hostname))
            assert ip_address(read.hostname) == ip_address(other.raw_host)
        except ValueError:
            assert read.hostname == other.raw_host


def network(data: bytes) -> None:
    """A network has one canonical spelling with the same meaning; it contains both its ends."""
    text = data.decode(errors="surrogateescape")
    is_tenant_id(text)
    with suppress(InvalidField):
        spelled = parse_network("network", text)
        assert parse_network("network", spelled) == spelled
        first, last = bounds(text)
        assert bounds(spelled) == (first, last)
        assert int(first) <= int(last)
        # An IPv4-mapped address counts as IPv4 and is in no IPv6 network.
        assert all(contains((spelled,), end) for end in (first, last) if plain_address(end) == end)
