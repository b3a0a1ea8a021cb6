"""The requests of winget clients, and the matches of their searches with an index segment."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import orjson

from catalog_service.model.identities import folded
from catalog_service.model.winget_rules import STABLE
from catalog_service.winget.index import (
    ANY_MARKET,
    CODES,
    NOT_IN,
    SEPARATOR,
    TEXTS,
    Field,
    Finder,
    IndexSegment,
    squeezed,
)
from common.errors import InvalidField, InvalidRequest


class MatchType(StrEnum):
    """The match types of the protocol. Servers define the last three.

    `WILDCARD` matches the whole value; `*` is any text and `?` one character. `FUZZY` and `FUZZY_SUBSTRING` are
    `CASE_INSENSITIVE` and `SUBSTRING` on letters and digits without accents. On codes all are `CASE_INSENSITIVE`.
    """

    EXACT = "Exact"
    CASE_INSENSITIVE = "CaseInsensitive"
    STARTS_WITH = "StartsWith"
    SUBSTRING = "Substring"
    WILDCARD = "Wildcard"
    FUZZY = "Fuzzy"
    FUZZY_SUBSTRING = "FuzzySubstring"


WHOLE = frozenset([MatchType.EXACT, MatchType.CASE_INSENSITIVE])
PARTS_OF_TEXTS = frozenset([MatchType.STARTS_WITH, MatchType.SUBSTRING])
GUESSED = frozenset([MatchType.WILDCARD, MatchType.FUZZY, MatchType.FUZZY_SUBSTRING])


@dataclass(frozen=True)
class Match:
    """A keyword and the fields to search, which are all in `TEXTS`, or none is."""

    fields: frozenset[Field]
    keyword: str
    kind: MatchType

    @cached_property
    def of_whole_values(self) -> bool:
        """Whether packages are looked up by whole values, without a scan."""
        if self.kind in WHOLE or Field.MARKET in self.fields:
            return True
        return self.kind in GUESSED and self.fields <= CODES

    @property
    def lines(self) -> frozenset[str]:
        """Lines of which each matching package has one; none if only a scan tells."""
        if not self.of_whole_values or Field.MARKET in self.fields:
            return frozenset()
        return frozenset(field.mark + self._folded for field in self.fields)

    @property
    def piece(self) -> str:
        """A part of the texts of each matching package; "" if none is known."""
        return self._folded if self.kind in PARTS_OF_TEXTS and self.fields <= TEXTS else ""

    def finders(self, segment: IndexSegment) -> Sequence[Finder]:
        """Return finders of the matching packages: each matching package has one that finds it."""
        if Field.MARKET in self.fields:
            return self._market_finders(segment)
        if self.of_whole_values:
            return [self._whole_finder(segment, field) for field in self.fields]
        # No value has control characters, but the separators are such.
        return () if self._has_control_characters else self._scans(segment)

    def _scans(self, segment: IndexSegment) -> Sequence[Finder]:
        lines = segment.texts if self.fields <= TEXTS else segment.codes
        match self.kind:
            case MatchType.SUBSTRING if self._folded:
                return [lines.finder(self._folded, self._marks)]
            case MatchType.WILDCARD:
                return [lines.pattern_finder(self._pattern)]
            case MatchType.FUZZY:
                return [lines.squeezed.finder(mark + self._squeezed + SEPARATOR) for mark in self._marks]
            case MatchType.FUZZY_SUBSTRING if self._squeezed:
                return [lines.squeezed.finder(self._squeezed, self._marks)]
        text = "" if self.kind is MatchType.FUZZY_SUBSTRING else self._folded
        return [lines.finder(mark + text) for mark in self._marks]

    def _whole_finder(self, segment: IndexSegment, field: Field) -> Finder:
        find = segment.finder(field.mark + self._folded)
        if self.kind is not MatchType.EXACT or field not in TEXTS:
            return find
        spelled = field.mark + self.keyword
        return _where(find, lambda number: spelled in segment.records[number].texts, len(segment.records))

    def _market_finders(self, segment: IndexSegment) -> Sequence[Finder]:
        """Find the packages with an installer for a market, by its whole name."""
        mark = Field.MARKET.mark
        finders = [segment.finder(mark + value) for value in (ANY_MARKET, self._folded)]
        if mark + NOT_IN + self._folded not in segment.lines:
            return finders
        excluded = segment.finder(mark + NOT_IN + self._folded)
        return [_where(find, lambda number: excluded(number) != number, len(segment.records)) for find in finders]

    @cached_property
    def _has_control_characters(self) -> bool:
        return any(ord(character) < ord(" ") for character in self.keyword)

    @cached_property
    def _marks(self) -> str:
        return "".join(field.mark for field in sorted(self.fields))

    @cached_property
    def _folded(self) -> str:
        return folded(self.keyword)

    @cached_property
    def _squeezed(self) -> str:
        return squeezed(self._folded)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The pattern of a wildcard keyword. Atomic groups keep its running time linear."""

        def fixed(text: str) -> str:
            return f"[^{SEPARATOR}]".join(map(re.escape, text.split("?")))

        first, *rest = map(fixed, re.sub(r"\*+", "*", self._folded).split("*"))
        middle = "".join(f"(?>[^{SEPARATOR}]*?{text})" for text in rest[:-1])
        last = f"[^{SEPARATOR}]*{rest[-1]}" if rest else ""
        return re.compile(f"[{re.escape(self._marks)}]{first}{middle}{last}(?={SEPARATOR})")


def _where(find: Finder, accepts: Callable[[int], bool], end: int) -> Finder:
    """Find what `find` finds if it is accepted."""

    def first(number: int) -> int:
        number = find(number)
        while number < end and not accepts(number):
            number = find(number + 1)
        return number

    return first


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
