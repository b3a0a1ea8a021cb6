"""Parses a request's path into a tenant and an operation.

Each segment is decoded once and validated. The gateway builds the forwarded path from these segments, never from the
raw path.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from urllib.parse import unquote

from common.auth.internal_tokens import Deployment
from common.errors import InvalidRequest, MethodNotAllowed, NotFound
from gateway.operations import DASHBOARD, OPERATIONS, WINGET, Access, Operation

_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-]+)+")  # a path without anything to decode or to refuse
_SEGMENT = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
_CACHED_LENGTH = 64  # characters of a path; one with a client's token is longer
# winget asks for the manifests of any text that its user typed.
_TYPED_ID = re.compile(r"((?:/client/api)?(?:/[^/]+)?/winget|/api)/packageManifests/(.+)")
UNREADABLE_ID = "-"  # no package id of winget's: those have a dot
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")
SINGLE_PREFIX = ("client", "api")  # of all paths in the single-tenant deployment; `client` is no tenant's id


class NoSuchOperation(NotFound):
    code = "operation_not_found"
    text = "There is no such operation."


@dataclass(frozen=True)
class Target:
    """The tenant and the operation of a request. `segments` are the decoded path after the tenant.

    `is_alias`: the multi-tenant deployment was called at `/client/api/{tenant_id}/…`, which means `/{tenant_id}/…`.
    """

    tenant_id: str
    operation: Operation
    segments: tuple[str, ...]
    is_alias: bool = False

    @staticmethod
    def parse(method: str, raw_path: str, deployment: Deployment, single_tenant_id: str) -> "Target":
        """Parse the path of a request line. Raises NoSuchOperation, also for a malformed path, or MethodNotAllowed."""
        path = raw_path.partition("?")[0]
        parse = _parse_cached if len(path) <= _CACHED_LENGTH else _parse
        return parse(method, path, deployment, single_tenant_id)

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
