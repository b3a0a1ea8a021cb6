"""From an address to a tenant and an operation (the introduction of the specification), never by the raw path.

Each part is decoded once and checked; what is forwarded is built anew from the checked parts.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from urllib.parse import unquote

from common.auth.callers import Deployment
from common.errors import InvalidRequest, MethodNotAllowed, NotFound
from gateway.operations import DASHBOARD, OPERATIONS, WINGET, Operation

_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-]+)+")  # a path of which nothing is to be decoded or refused
_SEGMENT = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
_SHORT = 64  # characters of a path that is remembered; one with a client's token is longer
# The client asks for the manifests of whatever its user typed.
_TYPED_ID = re.compile(r"((?:/client/api)?(?:/[^/]+)?/winget|/api)/packageManifests/(.+)")
UNREADABLE_ID = "-"  # no package id of winget's: those have a dot
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")
SINGLE_PREFIX = ("client", "api")  # of all paths in the single-tenant deployment; `client` is no tenant's id


class NoSuchOperation(NotFound):
    code = "operation_not_found"

    def __init__(self) -> None:
        super().__init__("There is no such operation.")


@dataclass(frozen=True)
class Target:
    """The meaning of an address: the operation, and the decoded parts of its path, the operation's words first.

    `is_alias`: the multi-tenant deployment was asked at `/client/api/{tenant_id}/…`, which means `/{tenant_id}/…`.
    """

    tenant_id: str
    operation: Operation
    segments: tuple[str, ...]
    is_alias: bool = False

    @staticmethod
    def parse(method: str, raw_path: str, deployment: Deployment, single_tenant_id: str) -> "Target":
        """Read the path of a request line.

        Raises:
            NoSuchOperation: the path is not well-formed or names no operation.
            MethodNotAllowed: the operation has other methods.
        """
        path = raw_path.partition("?")[0]
        parse = _parse_once if len(path) <= _SHORT else _parse
        return parse(method, path, deployment, single_tenant_id)

    @cached_property
    def missing(self) -> list[str]:
        """The names of the values that the address lacks, such as the client token of `delete_client`."""
        return self.operation.missing(self.segments)

    def check_complete(self) -> None:
        """Raise InvalidRequest where the address lacks a value."""
        if self.missing:
            raise InvalidRequest(f"The address lacks {' and '.join(self.missing)}.")


def _parse(method: str, path: str, deployment: Deployment, single_tenant_id: str) -> Target:
    parts = _decode(path)
    if deployment is Deployment.SINGLE:
        if parts[0] == "api":  # The short way to the source of winget's, which has no prefix of a tenant's.
            parts = (*SINGLE_PREFIX, WINGET, *parts[1:])
        if parts[:2] != SINGLE_PREFIX:
            raise NoSuchOperation
        return Target(single_tenant_id, *find(method, parts[2:]))
    is_alias = parts[:2] == SINGLE_PREFIX
    if is_alias:
        parts = parts[2:]
    operation, segments = find(method, parts[1:])
    return Target(parts[0], operation, segments, is_alias)


_parse_once = lru_cache(maxsize=4096)(_parse)


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
def _by_beginning() -> dict[str, tuple[Operation, ...]]:
    rows = (*OPERATIONS, *DASHBOARD)
    words = dict.fromkeys(row.parts[0] for row in rows)
    return {word: tuple(row for row in rows if row.parts[0] == word) for word in words}


@cache
def _by_method_and_word() -> dict[tuple[str, str], Operation]:
    """The operations of one word, without values, which no other address begins with."""
    rows = (row for row in OPERATIONS if all(len(other.parts) == 1 for other in _by_beginning()[row.parts[0]]))
    return {(row.method, row.word): row for row in rows}


def find(method: str, segments: tuple[str, ...]) -> tuple[Operation, tuple[str, ...]]:
    """The operation that the parts of an address after its prefix name, and these parts.

    Raises NoSuchOperation or MethodNotAllowed.
    """
    if len(segments) == 1 and (row := _by_method_and_word().get((method, segments[0]))):
        return row, segments
    rows = _by_beginning().get(segments[0] if segments else "", ())
    fitting = [row for row in rows if row.fits(segments)]
    # A whole address is preferred to the beginning of a longer one: `docs` to `docs/assets/{asset}`.
    whole = [row for row in fitting if not row.missing(segments)] or fitting
    if not whole:
        raise NoSuchOperation
    wanted = "GET" if method == "HEAD" else method
    for fit in whole:
        if fit.method == wanted:
            return fit, segments
    allowed = {row.method for row in whole}
    raise MethodNotAllowed(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))
