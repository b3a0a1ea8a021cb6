"""From a request to its tenant and operation, its client's address, and the base URL that the client used.

Each segment is decoded once and validated. The gateway builds the forwarded path from these segments, never from the
raw path. Forwarding headers count from trusted proxies only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from aiohttp import web

from common.auth.internal_tokens import Deployment
from common.errors import InvalidRequest, MethodNotAllowed, NotFound
from common.tenants import Address, Network, plain_address
from gateway.operations import DASHBOARD, OPERATIONS, WINGET, Access, Operation
from gateway.settings import GatewaySettings

_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-]+)+")  # a path without anything to decode or to refuse
_SEGMENT = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
_CACHED_LENGTH = 64  # characters of a path; one with a client's token is longer
# winget asks for the manifests of any text that its user typed.
_TYPED_ID = re.compile(r"((?:/client/api)?(?:/[^/]+)?/winget|/api)/packageManifests/(.+)")
UNREADABLE_ID = "-"  # no package id of winget's: those have a dot
# A personal source address has the token of a client in its path, after the tenant.
_PERSONAL = r"/source/([^/]+)(/winget/.*)"
_SOURCES = {
    Deployment.MULTI: re.compile(rf"((?:/client/api)?/[^/]+){_PERSONAL}"),
    Deployment.SINGLE: re.compile(rf"(/client/api){_PERSONAL}"),
}
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")
SINGLE_PREFIX = ("client", "api")  # of all paths in the single-tenant deployment; `client` is no tenant's id
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
LOOPBACK = ip_address("127.0.0.1")


class NoSuchOperation(NotFound):
    code = "operation_not_found"
    text = "There is no such operation."


@dataclass(frozen=True)
class Target:
    """The tenant and the operation of a request. `segments` are the decoded path after the tenant.

    `is_alias`: the multi-tenant deployment was called at `/client/api/{tenant_id}/…`, which means `/{tenant_id}/…`.
    `client_token` is the token in a personal source address; "" in every other path. No segment has it.
    """

    tenant_id: str
    operation: Operation
    segments: tuple[str, ...]
    is_alias: bool = False
    client_token: str = field(default="", repr=False)

    @staticmethod
    def parse(method: str, raw_path: str, deployment: Deployment, single_tenant_id: str) -> "Target":
        """Parse the path of a request line. Raises NoSuchOperation, also for a malformed path, or MethodNotAllowed."""
        path = raw_path.partition("?")[0]
        personal = _SOURCES[deployment].fullmatch(path)
        if personal:
            path = personal[1] + personal[3]
        parse = _parse_cached if len(path) <= _CACHED_LENGTH else _parse
        target = parse(method, path, deployment, single_tenant_id)
        if personal and not target.operation.is_winget:  # A token in a path counts for the source only.
            raise NoSuchOperation
        return replace(target, client_token=personal[2]) if personal else target

    @property
    def is_page(self) -> bool:
        return self.operation.access in {Access.PAGE, Access.DASHBOARD}

    @cached_property
    def missing(self) -> Sequence[str]:
        """The names of the values that the path lacks."""
        return self.operation.missing(self.segments)

    def check_complete(self) -> None:
        """Raise InvalidRequest if the path lacks a value, such as the client token of `delete_client`."""
        if self.missing:
            raise InvalidRequest(f"The address lacks {' and '.join(self.missing)}.")


def _parse(method: str, path: str, deployment: Deployment, single_tenant_id: str) -> Target:
    parts = _decode(path)
    if deployment is Deployment.SINGLE:
        if parts[0] == "api":  # The short path of the winget source has no tenant prefix.
            parts = (*SINGLE_PREFIX, WINGET, *parts[1:])
        if parts[:2] != SINGLE_PREFIX:
            raise NoSuchOperation
        return Target(single_tenant_id, *find_operation(method, parts[2:]))
    is_alias = parts[:2] == SINGLE_PREFIX
    if is_alias:
        parts = parts[2:]
    operation, segments = find_operation(method, parts[1:])
    return Target(parts[0], operation, segments, is_alias)


_parse_cached = lru_cache(maxsize=4096)(_parse)


def _decode(path: str) -> tuple[str, ...]:
    if typed := _TYPED_ID.fullmatch(path):
        return *_decode_segments(typed[1]), "packageManifests", _decode_id(typed[2])
    if _PLAIN.fullmatch(path):
        return tuple(path[1:].split("/"))
    if not path.startswith("/"):
        raise NoSuchOperation
    return _decode_segments(path)


def _decode_id(text: str) -> str:
    """Return a package id as it was typed; `UNREADABLE_ID` for text that no path segment can be."""
    try:
        (package_id,) = _decode_segments(f"/{text}")
    except (NoSuchOperation, ValueError):
        return UNREADABLE_ID
    return package_id


def _decode_segments(path: str) -> tuple[str, ...]:
    decoded = []
    for segment in path[1:].split("/"):
        if not _SEGMENT.fullmatch(segment):
            raise NoSuchOperation
        try:
            text = unquote(segment, errors="strict")
        except UnicodeDecodeError:
            raise NoSuchOperation from None
        if text in {".", ".."} or _UNSAFE.search(text):
            raise NoSuchOperation
        decoded.append(text)
    return tuple(decoded)


@cache
def _by_first_part() -> dict[str, list[Operation]]:
    rows: dict[str, list[Operation]] = {}
    for row in (*OPERATIONS, *DASHBOARD):
        rows.setdefault(row.parts[0], []).append(row)
    return rows


def find_operation(method: str, segments: tuple[str, ...]) -> tuple[Operation, tuple[str, ...]]:
    """The operation of a path after its prefix, and its segments. Raises NoSuchOperation or MethodNotAllowed."""
    rows = _by_first_part().get(segments[0] if segments else "", ())
    matching = [row for row in rows if row.matches(segments)]
    # A complete path is preferred to the beginning of a longer one: `docs` to `docs/assets/{asset}`.
    matching = [row for row in matching if not row.missing(segments)] or matching
    if not matching:
        raise NoSuchOperation
    for row in matching:
        if row.method == ("GET" if method == "HEAD" else method):
            return row, segments
    allowed = {row.method for row in matching}
    raise MethodNotAllowed(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))


def caller_address(request: web.Request, trusted: tuple[Network, ...]) -> Address:
    """The socket's address; behind a trusted proxy, the right-most `X-Forwarded-For` hop that is no trusted proxy."""
    address = _socket_address(request)
    if not _is_trusted(address, trusted):
        return address
    hops = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")
    for hop in reversed(hops):
        try:
            address = plain_address(ip_address(hop.strip()))
        except ValueError:
            return address  # No proxy wrote this hop, so the chain ends.
        if not _is_trusted(address, trusted):
            return address
    return address


def base_url(request: web.Request, settings: GatewaySettings, tenant_id: str) -> str:
    """The base URL of this tenant's operations, such as `https://packages.example.com/acme`. Raises InvalidRequest."""
    prefix = "client/api" if settings.deployment is Deployment.SINGLE else tenant_id
    return f"{settings.public_url or _own_origin(request, settings)}/{prefix}"


def is_same_origin(request: web.Request, base: str) -> bool:
    """Whether the browser sent the request from one of our pages, or from no page.

    Browsers send Sec-Fetch-Site over TLS only, and Origin over plain HTTP, too. The request's own host is ours even if
    `base` differs: a proxy that ends TLS changes the scheme, and `PUBLIC_URL` may name another host.
    """
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site in {"same-origin", "none"}
    host = None if origin is None else origin.partition("://")[2]  # "" for the origin `null`
    return host is None or (host != "" and host in {request.headers.get("Host"), urlsplit(base).netloc})


def is_https(base: str) -> bool:
    return urlsplit(base).scheme == "https"


def _own_origin(request: web.Request, settings: GatewaySettings) -> str:
    scheme, host = request.scheme, request.headers.get("Host", "")
    if settings.trusted_proxies and _is_trusted(_socket_address(request), settings.trusted_proxies):
        scheme = request.headers.get("X-Forwarded-Proto", scheme)
        host = request.headers.get("X-Forwarded-Host", host)
    return _origin(scheme, host)


@lru_cache(maxsize=4096)
def _origin(scheme: str, host: str) -> str:
    try:
        is_host = _HOST.fullmatch(host) is not None and urlsplit(f"//{host}").port != 0
    except ValueError:  # The brackets hold no IPv6 address, or the port is above 65535.
        is_host = False
    if scheme not in {"http", "https"} or not is_host:
        raise InvalidRequest("The Host header is not a host name.")
    return f"{scheme}://{host}"


def _socket_address(request: web.Request) -> Address:
    # A unix socket has no address; its client is on this machine.
    return _parse_address(request.remote) if request.remote else LOOPBACK


@lru_cache(maxsize=4096)
def _parse_address(text: str) -> Address:
    return plain_address(ip_address(text.partition("%")[0]))


def _is_trusted(address: Address, trusted: tuple[Network, ...]) -> bool:
    return bool(trusted) and any(address in network for network in trusted)
