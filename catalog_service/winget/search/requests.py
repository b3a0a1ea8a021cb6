"""What winget asks for, as values that cannot be wrong."""

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import orjson

from catalog_service.winget.installable import CHANNEL
from catalog_service.winget.search.cooperative_yield import CooperativeYield
from catalog_service.winget.search.fields import CODES, TEXTS, Field
from catalog_service.winget.search.index_segment import IndexSegment
from catalog_service.winget.search.matching import GUESSED, Match, MatchType
from common.errors import InvalidField, InvalidRequest

KEYWORD_LIMIT = 255  # characters, as the protocol has it
MATCHES = 64  # inclusions and filters, each; a client sends one for each code of what it found installed
TOKEN_LIMIT = 4096  # characters
QUERY_LIMIT = 128  # characters of a value
PARTS = 8  # matches that go through all values of a field, in all of a search
PATTERN_PARTS = 2  # of these, matches of the types Wildcard, Fuzzy and FuzzySubstring, which cost the most
PAGE = 500  # hits in an answer, at most
Choice = TypeVar("Choice", bound=StrEnum)
_CHOICES: Mapping[type[StrEnum], Mapping[str, Any]] = {
    kind: {member.casefold(): member for member in kind} for kind in (Field, MatchType)
}


@dataclass(frozen=True)
class Search:
    """What is wanted: what any of `either` finds, all where there is none, and of that what every filter finds too.

    At most `page` packages, of those that stand after the id `after`.
    """

    either: tuple[Match, ...] = ()
    filters: tuple[Match, ...] = ()
    page: int = PAGE
    after: str = ""

    @property
    def scans_texts(self) -> bool:
        """Whether it goes through all values of a field; whole values are looked up."""
        return any(not match.of_whole_values for match in (*self.either, *self.filters))

    async def within(self, block: IndexSegment, turn: CooperativeYield) -> Collection[int]:
        """The numbers of the packages of a block that are wanted; others have their turn between two matches."""
        found: Set[int] | None = None
        for match in self.filters:
            await turn.pause()
            numbers = match.numbers_in(block)
            found = numbers if found is None else found & numbers
            if not found:
                return ()
        if self.either:
            any_of: set[int] = set()
            for match in self.either:
                await turn.pause()
                any_of |= match.numbers_in(block)
            found = any_of if found is None else found & any_of
        return range(len(block.records)) if found is None else found

    def token(self, last: str) -> str:
        """By which the same search goes on after this package; the order of ids stays, whatever is added or removed."""
        return base64.urlsafe_b64encode(self._digest + last.encode()).decode()

    def continued(self, token: str) -> "Search":
        """The rest of a search, after the page that this token came with. Raises InvalidRequest."""
        try:
            told = base64.b64decode(token[:TOKEN_LIMIT], altchars=b"-_", validate=True)
            digest, last = told[: len(self._digest)], told[len(self._digest) :].decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            digest, last = b"", ""
        if digest != self._digest or not last:
            raise InvalidRequest("ContinuationToken: is not one of an answer to this search.")
        return Search(self.either, self.filters, self.page, last)

    @property
    def _digest(self) -> bytes:
        """The same at every replica, for the same search."""
        both = (self.either, self.filters)
        wanted = [[(sorted(match.fields), match.keyword, match.kind) for match in matches] for matches in both]
        return hashlib.sha256(orjson.dumps(wanted)).digest()[:12]


def parse_search(body: bytes) -> Search:
    """The search that the body of a request asks for. Raises InvalidRequest."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body must be JSON.") from None
    if not isinstance(asked, dict):
        raise InvalidRequest("The body must be a JSON object.")
    most = asked.get("MaximumResults")
    if most is not None and (type(most) is not int or most < 0):
        raise InvalidField("MaximumResults", "must be a whole number")
    page = min(most or PAGE, PAGE)
    everything = asked.get("FetchAllManifests")
    if not isinstance(everything, bool | None):
        raise InvalidField("FetchAllManifests", "must be true or false")
    if everything:
        return Search(page=page)
    either = () if asked.get("Query") is None else _queries(asked["Query"])
    either, filters = _once(*either, *_matches(asked, "Inclusions")), _once(*_matches(asked, "Filters"))
    scans = [match for match in _once(*either, *filters) if not match.of_whole_values]
    if len(scans) > PARTS:
        told = f"at most {PARTS} may look for other than whole values, Exact or CaseInsensitive."
        raise InvalidRequest(f"Query, Inclusions and Filters: {told}")
    if sum(match.kind in GUESSED for match in scans) > PATTERN_PARTS:
        told = f"at most {PATTERN_PARTS} may be Wildcard, Fuzzy or FuzzySubstring."
        raise InvalidRequest(f"Query, Inclusions and Filters: {told}")
    return Search(either, filters, page)


@dataclass(frozen=True)
class Query:
    """What of a package's manifest is wanted; empty is all."""

    version: str = ""
    channel: str = ""
    market: str = ""

    @property
    def of_our_channel(self) -> bool:
        return self.channel.casefold() in {"", CHANNEL}


def parse_query(sent: Mapping[str, str]) -> Query:
    """The query of an address, its names in any letter case. Raises InvalidField."""
    named = {name.casefold(): value for name, value in sent.items()}
    for name in ("Version", "Channel", "Market"):
        if len(named.get(name.casefold(), "")) > QUERY_LIMIT:
            raise InvalidField(name, f"must be a text of at most {QUERY_LIMIT} characters")
    return Query(named.get("version", ""), named.get("channel", ""), named.get("market", ""))


def _matches(asked: Mapping[str, Any], name: str) -> tuple[Match, ...]:
    listed = [] if asked.get(name) is None else asked[name]
    if not isinstance(listed, list) or len(listed) > MATCHES:
        raise InvalidField(name, f"must be a list of at most {MATCHES}")
    return tuple(_match(f"{name}[{number}]", one) for number, one in enumerate(listed))


def _once(*matches: Match) -> tuple[Match, ...]:
    return tuple(dict.fromkeys(matches))


def _queries(asked: object) -> tuple[Match, ...]:
    """Text that was typed at random: part of what a package is called, or the whole code of what is installed."""
    typed = _keyword("Query", asked, TEXTS)
    return typed, Match(CODES, typed.keyword, MatchType.CASE_INSENSITIVE)


def _match(name: str, asked: object) -> Match:
    if not isinstance(asked, dict):
        raise InvalidField(name, "must be an object")
    field = _choice(f"{name}.PackageMatchField", asked.get("PackageMatchField"), Field)
    return _keyword(f"{name}.RequestMatch", asked.get("RequestMatch"), frozenset([field]))


def _keyword(name: str, asked: object, fields: frozenset[Field]) -> Match:
    if not isinstance(asked, dict):
        raise InvalidField(name, "must be an object")
    keyword = asked.get("KeyWord")
    if not isinstance(keyword, str) or len(keyword) > KEYWORD_LIMIT:
        raise InvalidField(f"{name}.KeyWord", f"must be a text of at most {KEYWORD_LIMIT} characters")
    return Match(fields, keyword, _choice(f"{name}.MatchType", asked.get("MatchType"), MatchType))


def _choice(name: str, asked: object, kind: type[Choice]) -> Choice:
    found: Choice | None = _CHOICES[kind].get(asked.casefold()) if isinstance(asked, str) else None
    if found is None:
        raise InvalidField(name, f"must be one of {', '.join(kind)}")
    return found
