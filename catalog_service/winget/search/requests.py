"""Parses the requests of winget clients."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeVar

import orjson

from catalog_service.model.manifest.rules import STABLE
from catalog_service.winget.search.fields import CODES, TEXTS, Field
from catalog_service.winget.search.matching import GUESSED, Match, MatchType
from common.errors import InvalidField, InvalidRequest

KEYWORD_LIMIT = 255  # characters, as in the protocol
MATCHES = 64  # inclusions and filters, each; a client sends one for each code of an installed program
TOKEN_LIMIT = 4096  # characters
QUERY_LIMIT = 128  # characters of a value
PARTS = 8  # matches of a search that scan all values of a field
PATTERN_PARTS = 2  # of these, matches of the expensive types Wildcard, Fuzzy and FuzzySubstring
PAGE = 500  # results in a response
Choice = TypeVar("Choice", bound=StrEnum)
_CHOICES: Mapping[type[StrEnum], Mapping[str, Any]] = {
    kind: {member.casefold(): member for member in kind if member is not Field.PUBLISHER} for kind in (Field, MatchType)
}


class Need(NamedTuple):
    """A package has one of these whole lines, or one of these pieces in its texts."""

    lines: frozenset[str]
    pieces: frozenset[str]

    @classmethod
    def of(cls, matches: Sequence[Match]) -> Self | None:
        """The need of each package that one of these matches finds; None if that is not known of one of them."""
        lines, pieces = [match.lines for match in matches], [match.piece for match in matches]
        if not all(line or piece for line, piece in zip(lines, pieces, strict=True)):
            return None
        return cls(frozenset().union(*lines), frozenset(filter(None, pieces)))


@dataclass(frozen=True)
class Search:
    """A search for packages that match one of `either`, if there are any, and all filters.

    It returns at most `page` packages with ids greater than `after`.
    """

    either: tuple[Match, ...] = ()
    filters: tuple[Match, ...] = ()
    page: int = PAGE
    after: str = ""

    @property
    def scans_texts(self) -> bool:
        """Whether the search scans all values of a field, instead of looking up whole values."""
        return any(not match.of_whole_values for match in (*self.either, *self.filters))

    def needs(self) -> Sequence[Need]:
        """The needs of each matching package, those that are checked faster first."""
        groups = [*((match,) for match in self.filters), self.either]
        needs = [need for group in groups if group and (need := Need.of(group))]
        return sorted(needs, key=lambda need: len(need.pieces))

    def token(self, last: str) -> str:
        """Return the token to continue the search after this package. Changes of the catalog do not affect it."""
        return base64.urlsafe_b64encode(self._digest + last.encode()).decode()

    def continued(self, token: str) -> "Search":
        """Return the rest of the search, after the page with this token. Raises InvalidRequest."""
        try:
            content = base64.b64decode(token[:TOKEN_LIMIT], altchars=b"-_", validate=True)
            digest, last = content[: len(self._digest)], content[len(self._digest) :].decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            digest, last = b"", ""
        if digest != self._digest or not last:
            raise InvalidRequest("ContinuationToken: is not one of an answer to this search.")
        return Search(self.either, self.filters, self.page, last)

    @property
    def _digest(self) -> bytes:
        """A digest of the search, the same at every replica."""
        groups = (self.either, self.filters)
        matches = [[(sorted(match.fields), match.keyword, match.kind) for match in group] for group in groups]
        return hashlib.sha256(orjson.dumps(matches)).digest()[:12]


def parse_search(body: bytes) -> Search:
    """Return the search of a request's body. Raises InvalidRequest."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body must be JSON.") from None
    if not isinstance(data, dict):
        raise InvalidRequest("The body must be a JSON object.")
    limit = data.get("MaximumResults")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidField("MaximumResults", "must be a whole number")
    page = min(limit or PAGE, PAGE)
    fetch_all = data.get("FetchAllManifests")
    if not isinstance(fetch_all, bool | None):
        raise InvalidField("FetchAllManifests", "must be true or false")
    if fetch_all:
        return Search(page=page)
    either = () if data.get("Query") is None else _queries(data["Query"])
    either, filters = _unique(*either, *_matches(data, "Inclusions")), _unique(*_matches(data, "Filters"))
    scans = _unique(*(match for match in (*either, *filters) if not match.of_whole_values))
    if len(scans) > PARTS:
        reason = f"at most {PARTS} may look for other than whole values, Exact or CaseInsensitive."
        raise InvalidRequest(f"Query, Inclusions and Filters: {reason}")
    if sum(match.kind in GUESSED for match in scans) > PATTERN_PARTS:
        reason = f"at most {PATTERN_PARTS} may be Wildcard, Fuzzy or FuzzySubstring."
        raise InvalidRequest(f"Query, Inclusions and Filters: {reason}")
    return Search(either, filters, page)


@dataclass(frozen=True)
class Query:
    """The requested part of a package's manifest; an empty field is no condition."""

    version: str = ""
    channel: str = ""
    market: str = ""

    @property
    def has_supported_channel(self) -> bool:
        return self.channel.casefold() in {"", STABLE}


def parse_query(parameters: Mapping[str, str]) -> Query:
    """Return the query of an address; its names are in any letter case. Raises InvalidField."""
    values = {name.casefold(): value for name, value in parameters.items()}
    for name in ("Version", "Channel", "Market"):
        if len(values.get(name.casefold(), "")) > QUERY_LIMIT:
            raise InvalidField(name, f"must be a text of at most {QUERY_LIMIT} characters")
    return Query(values.get("version", ""), values.get("channel", ""), values.get("market", ""))


def _matches(data: Mapping[str, Any], name: str) -> tuple[Match, ...]:
    items = [] if data.get(name) is None else data[name]
    if not isinstance(items, list) or len(items) > MATCHES:
        raise InvalidField(name, f"must be a list of at most {MATCHES}")
    return tuple(_match(f"{name}[{number}]", item) for number, item in enumerate(items))


def _unique(*matches: Match) -> tuple[Match, ...]:
    return tuple(dict.fromkeys(matches))


def _queries(data: object) -> tuple[Match, ...]:
    """Return the matches of free text: part of a name or publisher, or a whole code."""
    text = _keyword("Query", data, TEXTS)
    return text, Match(CODES, text.keyword, MatchType.CASE_INSENSITIVE)


def _match(name: str, data: object) -> Match:
    if not isinstance(data, dict):
        raise InvalidField(name, "must be an object")
    field = _choice(f"{name}.PackageMatchField", data.get("PackageMatchField"), Field)
    return _keyword(f"{name}.RequestMatch", data.get("RequestMatch"), frozenset([field]))


def _keyword(name: str, data: object, fields: frozenset[Field]) -> Match:
    if not isinstance(data, dict):
        raise InvalidField(name, "must be an object")
    keyword = data.get("KeyWord")
    if not isinstance(keyword, str) or len(keyword) > KEYWORD_LIMIT:
        raise InvalidField(f"{name}.KeyWord", f"must be a text of at most {KEYWORD_LIMIT} characters")
    return Match(fields, keyword, _choice(f"{name}.MatchType", data.get("MatchType"), MatchType))


def _choice(name: str, data: object, kind: type[Choice]) -> Choice:
    member: Choice | None = _CHOICES[kind].get(data.casefold()) if isinstance(data, str) else None
    if member is None:
        raise InvalidField(name, f"must be one of {', '.join(_CHOICES[kind].values())}")
    return member
