"""Winget requests: invalid requests are refused with a reason, and a page continues after the previous one."""

import base64
from typing import Any

import orjson
import pytest

from catalog_service.winget.contracts import Contract
from catalog_service.winget.requests import KEYWORD_LIMIT, MATCHES, PAGE, PARTS, parse_query, parse_search
from common.errors import InvalidRequest
from tests.support.tables import each

GOOD = {"KeyWord": "a", "MatchType": "Exact"}
FILTER = {"PackageMatchField": "Tag", "RequestMatch": GOOD}


@each(
    ("body", "field"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[]", "object"),
        ({"Query": "a"}, "Query"),
        ({"Query": {"KeyWord": "a"}}, "Query.MatchType"),
        ({"Query": {"MatchType": "Exact"}}, "Query.KeyWord"),
        ({"Query": {**GOOD, "MatchType": "Regex"}}, "Query.MatchType"),
        ({"Query": {**GOOD, "MatchType": 1}}, "Query.MatchType"),
        ({"Query": {**GOOD, "KeyWord": 1}}, "Query.KeyWord"),
        ({"Query": {**GOOD, "KeyWord": "a" * (KEYWORD_LIMIT + 1)}}, "Query.KeyWord"),
        ({"Filters": {}}, "Filters"),
        ({"Filters": {"a": 1}}, "Filters"),
        ({"Filters": ["a"]}, "Filters[0]"),
        ({"Filters": [FILTER] * (MATCHES + 1)}, "Filters"),
        ({"Inclusions": [{**FILTER, "PackageMatchField": "Colour"}]}, "Inclusions[0].PackageMatchField"),
        ({"Inclusions": [{"PackageMatchField": "Tag"}]}, "Inclusions[0].RequestMatch"),
        (
            {"Inclusions": [FILTER, {**FILTER, "RequestMatch": {**GOOD, "MatchType": "x"}}]},
            "Inclusions[1].RequestMatch",
        ),
        ({"MaximumResults": -1}, "MaximumResults"),
        ({"MaximumResults": "5"}, "MaximumResults"),
        ({"MaximumResults": True}, "MaximumResults"),
        ({"FetchAllManifests": "yes"}, "FetchAllManifests"),
        ({"FetchAllManifests": 1}, "FetchAllManifests"),
    ],
)
def test_an_invalid_request_is_refused_with_its_field(body: Any, field: str) -> None:
    sent = body if isinstance(body, bytes) else orjson.dumps(body)
    with pytest.raises(InvalidRequest, match=field.replace("[", r"\[").replace(".", r"\.")):
        parse_search(sent)


def parts(number: int, field: str = "Tag", kind: str = "Substring") -> list[dict[str, Any]]:
    texts = [{"KeyWord": str(text), "MatchType": kind} for text in range(number)]
    return [{"PackageMatchField": field, "RequestMatch": text} for text in texts]


@each("kind", ["StartsWith", "Substring"])
def test_a_search_has_few_parts_that_scan_all_values(kind: str) -> None:
    typed = {"KeyWord": "a", "MatchType": kind}
    either, filters, whole = parts(3, kind=kind), parts(PARTS - 4, "Moniker", kind), parts(60, kind="Exact")
    assert parse_search(orjson.dumps({"Query": typed, "Inclusions": [*either, *whole], "Filters": [*filters, *whole]}))
    one_more = parts(1, "PackageName", kind)
    for inclusions, also in (([*either, *one_more], filters), (either, [*filters, *one_more])):
        with pytest.raises(InvalidRequest, match="at most 8 may look for other than whole values"):
            parse_search(orjson.dumps({"Query": typed, "Inclusions": inclusions, "Filters": also}))


@each("kind", ["Wildcard", "Fuzzy", "FuzzySubstring"])
def test_a_search_has_at_most_two_wildcard_or_fuzzy_parts(kind: str) -> None:
    typed, (part, other) = {"KeyWord": "a", "MatchType": kind}, parts(2, kind=kind)
    whole = parts(MATCHES, "ProductCode", kind)  # Codes are looked up as whole values with every match type.
    assert parse_search(orjson.dumps({"Query": typed, "Inclusions": whole, "Filters": [part, *parts(6)]}))
    for body in (
        {"Query": typed, "Inclusions": [part], "Filters": [other]},
        {"Inclusions": [part, other, *parts(1, "Moniker", "Fuzzy")]},
        {"Filters": [part, other, *parts(1, "Moniker", "Wildcard")]},
    ):
        with pytest.raises(InvalidRequest, match="at most 2 may be Wildcard, Fuzzy or FuzzySubstring"):
            parse_search(orjson.dumps(body))


def test_a_search_accepts_the_values_of_a_client() -> None:
    assert len(parse_search(orjson.dumps({"Inclusions": parts(MATCHES, "ProductCode", "Exact")})).either) == MATCHES
    assert len(parse_search(orjson.dumps({"Inclusions": parts(MATCHES, "ProductCode", "Fuzzy")})).either) == MATCHES


def test_a_repeated_match_is_searched_once() -> None:
    (once,) = parts(1)
    search = parse_search(orjson.dumps({"Inclusions": [once] * MATCHES, "Filters": [once] * MATCHES}))
    assert (len(search.either), len(search.filters)) == (1, 1)


def test_field_names_are_accepted_in_any_letter_case() -> None:
    body = {"Filters": [{"PackageMatchField": "TAG", "RequestMatch": {"KeyWord": "a", "MatchType": "exact"}}]}
    assert parse_search(orjson.dumps(body)) == parse_search(orjson.dumps({"Filters": [FILTER]}))


@each(("most", "page"), [(None, PAGE), (0, PAGE), (7, 7), (10**9, PAGE)])
def test_a_page_has_the_requested_size_up_to_a_maximum(most: int | None, page: int) -> None:
    assert parse_search(orjson.dumps({"MaximumResults": most})).page == page


def test_a_search_continues_after_its_token() -> None:
    search = parse_search(orjson.dumps({"Filters": [FILTER]}))
    assert search.continued(search.token("Acme.Édîteur")).after == "Acme.Édîteur"
    assert search.continued(search.token("A" * 128)).after == "A" * 128


def test_a_token_is_valid_for_its_own_search_only() -> None:
    search, other = parse_search(b"{}"), parse_search(orjson.dumps({"Filters": [FILTER]}))
    good = search.token("Acme.Editor")
    altered = base64.urlsafe_b64encode(b"\0" + base64.urlsafe_b64decode(good)[1:]).decode()
    broken = base64.urlsafe_b64encode(base64.urlsafe_b64decode(good)[:13] + b"\xff").decode()
    for token in (
        other.token("Acme.Editor"),
        altered,
        broken,
        search.token(""),
        "x",
        "é",
        "=",
        "a" * 10_000,
        f"{good}x",
    ):
        with pytest.raises(InvalidRequest, match="ContinuationToken"):
            search.continued(token)


def test_a_token_is_valid_at_every_replica() -> None:
    search = parse_search(orjson.dumps({"Query": GOOD, "Filters": [FILTER]}))
    assert search.token("Acme.Editor") == "yD6zI3zN6z1yraUaQWNtZS5FZGl0b3I="  # parsed again, as in another process


def test_a_query_is_accepted_in_any_letter_case() -> None:
    assert parse_query({"VERSION": "1", "channel": "Stable", "MarKet": "de"}) == parse_query(
        {"Version": "1", "Channel": "Stable", "Market": "de"}
    )
    for name in ("Version", "Channel", "Market"):
        with pytest.raises(InvalidRequest, match=name):
            parse_query({name: "a" * 129})


@each(
    ("header", "minor"),
    [(None, 0), ("", 0), ("1", 0), ("1.0.0", 0), ("1.7", 7), ("1.10.0", 10), ("1.12.0.1", 12), ("1.28.0", 28)],
)
def test_the_header_selects_the_contract(header: str | None, minor: int) -> None:
    assert Contract.parse(header).minor == minor


@each("header", ["2.0.0", "0.9", "1.", "1.x", "v1.0", "1.0.0.0.0", "10.0", "1.99999", "*"])
def test_an_invalid_contract_is_refused(header: str) -> None:
    with pytest.raises(InvalidRequest, match="Version"):
        Contract.parse(header)
