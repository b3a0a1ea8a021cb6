"""The matches of a search: every match type in every field, and their combinations."""

import asyncio
from collections.abc import Collection
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.enumerations import FileType
from catalog_service.model.identities import folded
from catalog_service.model.manifest import AppsAndFeaturesEntry, LocalTexts
from catalog_service.winget.index import (
    CODES,
    FILTER_THRESHOLD,
    Field,
    Finder,
    IndexSegment,
    TrigramFilter,
    record_of,
    squeezed,
)
from catalog_service.winget.requests import MATCHES as MAX_MATCHES
from catalog_service.winget.requests import Match, MatchType, Search, parse_search
from catalog_service.winget.search import CooperativeYield, candidate_segments, matching_numbers
from common.errors import InvalidField
from tests.support.samples.winget_factories import make_entry, make_version
from tests.support.tables import each

CODE, OTHER_CODE = "{01234567-89AB-CDEF-0123-456789ABCDEF}", "{FEDCBA98-7654-3210-FEDC-BA9876543210}"
INSTALLED = AppsAndFeaturesEntry(display_name="Acmé Editor 7.1 (x64)", upgrade_code=OTHER_CODE)
FAMILY = "Acme.Editor_8wekyb3d8bbwe"
ENTRIES = (
    make_entry(
        "Acme.Editor",
        make_version(
            product_code=CODE,
            commands=("edit",),
            apps_and_features_entries=(
                AppsAndFeaturesEntry(display_name="Acmé Editor 7.1 (x64)", upgrade_code=OTHER_CODE),
            ),
            allowed_markets=("DE", "AT"),
        ),
        name="Éditeur de Texte",
        moniker="ed-it",
        tags=("text-tool",),
    ),
    make_entry(
        "Acme.Store",
        make_version("Acme.Store", installer_type=FileType.MSIX, package_family_name=FAMILY, excluded_markets=("US",)),
        name="Store",
    ),
    make_entry("Other.Tool", make_version("Other.Tool"), name="Tool"),
)
SEGMENT = IndexSegment([record for entry in ENTRIES if (record := record_of(entry))])

# For each field: a value, its beginning, its middle, a pattern, the value without accents and signs, and the id of the
# only matching package. Codes have the whole value in other letter cases instead of the pattern and the plain value.
VALUES: dict[Field, tuple[str, str, str, str, str, str]] = {
    Field.IDENTIFIER: ("Acme.Editor", "acme.edi", "ME.EDIT", "*.editor", "acmeEDITOR", "Acme.Editor"),
    Field.NAME: ("Éditeur de Texte", "éditeur d", "DE TEX", "é*r de ?exte", "Editeur-de-texte", "Acme.Editor"),
    Field.MONIKER: ("ed-it", "ed-", "D-I", "e?-it", "EDIT", "Acme.Editor"),
    Field.COMMAND: ("edit", "ed", "DI", "e*", "e.d.i.t", "Acme.Editor"),
    Field.TAG: ("text-tool", "text-", "-TOOL", "*tool", "texttool", "Acme.Editor"),
    Field.FAMILY_NAME: (FAMILY, "acme.editor_8", "WEKYB", FAMILY.upper(), FAMILY.lower(), "Acme.Store"),
    Field.PRODUCT_CODE: (CODE, "{0123", "89AB", CODE.lower(), CODE.title(), "Acme.Editor"),
    Field.UPGRADE_CODE: (OTHER_CODE, "{FEDC", "7654", OTHER_CODE.lower(), OTHER_CODE.title(), "Acme.Editor"),
    Field.NORMALIZED_NAME: ("acméeditor", "acmé", "méedit", "acm*editor", "acme editor", "Acme.Editor"),
    Field.INSTALLER_TYPE: ("msix", "msix", "six", "m?ix", "M.S.I.X", "Acme.Store"),
}
CASES = [
    (field, kind, keyword, package_id)
    for field, (value, beginning, middle, pattern, rough, package_id) in VALUES.items()
    for kind, keyword in {
        MatchType.EXACT: value,
        MatchType.CASE_INSENSITIVE: value.swapcase(),
        MatchType.STARTS_WITH: beginning,
        MatchType.SUBSTRING: middle,
        MatchType.WILDCARD: pattern,
        MatchType.FUZZY: rough,
        MatchType.FUZZY_SUBSTRING: rough if field in CODES else rough[1:],
    }.items()
]


def search_of(field: Field, kind: MatchType, keyword: str) -> dict[str, Any]:
    return {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": kind}}


def parse_and_match(segment: IndexSegment, **body: Any) -> Collection[int]:
    return asyncio.run(matching_numbers(parse_search(orjson.dumps(body)), segment, CooperativeYield()))


def found_ids(**body: Any) -> list[str]:
    return [SEGMENT.ids[number] for number in sorted(parse_and_match(SEGMENT, **body))]


@each(("field", "kind", "keyword", "package_id"), CASES)
def test_every_field_is_matched_in_every_way(field: Field, kind: MatchType, keyword: str, package_id: str) -> None:
    assert found_ids(Filters=[search_of(field, kind, keyword)]) == [package_id]
    assert found_ids(Inclusions=[search_of(field, kind, keyword)]) == [package_id]
    assert found_ids(Filters=[search_of(field, kind, f"{keyword}nothing")]) == []


@each("letter", ["ä", "\u0390", "\u1fb4", "ß"])
def test_a_letter_matches_its_capital(letter: str) -> None:
    assert folded(letter) == folded(letter.upper())


@each("kind", list(MatchType))
@each(
    ("market", "packages"),
    [
        ("DE", ["Acme.Editor", "Acme.Store", "Other.Tool"]),
        ("at", ["Acme.Editor", "Acme.Store", "Other.Tool"]),
        ("US", ["Other.Tool"]),
        ("FR", ["Acme.Store", "Other.Tool"]),
    ],
)
def test_a_market_is_matched_as_a_whole(kind: MatchType, market: str, packages: list[str]) -> None:
    assert found_ids(Filters=[search_of(Field.MARKET, kind, market)]) == packages


@each(
    ("field", "kind", "keyword"),
    [
        (Field.IDENTIFIER, MatchType.EXACT, "acme.editor"),
        (Field.NAME, MatchType.EXACT, "éditeur de texte"),
        (Field.IDENTIFIER, MatchType.STARTS_WITH, "cme."),
        (Field.IDENTIFIER, MatchType.SUBSTRING, "Éditeur"),
        (Field.IDENTIFIER, MatchType.WILDCARD, "cme.*"),
        (Field.IDENTIFIER, MatchType.WILDCARD, "acme.edito"),
        (Field.IDENTIFIER, MatchType.WILDCARD, "acme?editor?"),
        (Field.IDENTIFIER, MatchType.WILDCARD, "acme.[e]ditor"),
        (Field.IDENTIFIER, MatchType.FUZZY, "acme"),
        (Field.PRODUCT_CODE, MatchType.FUZZY, CODE.strip("{}")),
        (Field.PRODUCT_CODE, MatchType.FUZZY_SUBSTRING, CODE.strip("{}")),
        (Field.PRODUCT_CODE, MatchType.WILDCARD, "{*"),
        (Field.IDENTIFIER, MatchType.SUBSTRING, "editor\n"),
        (Field.NAME, MatchType.SUBSTRING, "texte\n"),
        (Field.IDENTIFIER, MatchType.SUBSTRING, Field.IDENTIFIER.mark),
    ],
)
def test_a_missing_value_is_not_found(field: Field, kind: MatchType, keyword: str) -> None:
    assert found_ids(Filters=[search_of(field, kind, keyword)]) == []


@each("keyword", ["editor", "ÉDITEUR", "ed-i", "text-", CODE, CODE.lower(), FAMILY.upper(), OTHER_CODE])
def test_a_query_searches_texts_and_codes(keyword: str) -> None:
    assert found_ids(Query={"KeyWord": keyword, "MatchType": "Substring"}) in (["Acme.Editor"], ["Acme.Store"])


@each("keyword", ["Edition Müller", "müller", "VERLAG"])
def test_a_query_searches_the_publisher_in_every_locale(keyword: str) -> None:
    verlag = LocalTexts(package_locale="de-DE", publisher="Verlag Müller")
    entry = make_entry("A.B", name="Tool", publisher="Edition Müller", locales=(verlag,))
    segment = IndexSegment([record for each in (*ENTRIES, entry) if (record := record_of(each))])
    (number,) = parse_and_match(segment, Query={"KeyWord": keyword, "MatchType": "Substring"})
    assert segment.ids[number] == "A.B"


def test_the_publisher_is_no_field_of_the_protocol() -> None:
    with pytest.raises(InvalidField):
        found_ids(Filters=[{**search_of(Field.NAME, MatchType.EXACT, "Acme"), "PackageMatchField": "Publisher"}])


def test_a_query_does_not_match_part_of_a_code() -> None:
    assert found_ids(Query={"KeyWord": "89AB", "MatchType": "Substring"}) == []


def test_the_query_or_an_inclusion_and_every_filter_must_match() -> None:
    typed = {"KeyWord": "tool", "MatchType": "Substring"}
    editor = search_of(Field.IDENTIFIER, MatchType.EXACT, "Acme.Editor")
    acme = search_of(Field.IDENTIFIER, MatchType.STARTS_WITH, "acme")
    assert found_ids(Query=typed) == ["Acme.Editor", "Other.Tool"]
    assert found_ids(Query=typed, Inclusions=[acme]) == ["Acme.Editor", "Acme.Store", "Other.Tool"]
    assert found_ids(Query=typed, Inclusions=[acme], Filters=[acme]) == ["Acme.Editor", "Acme.Store"]
    assert found_ids(Query=typed, Filters=[acme, editor]) == ["Acme.Editor"]
    assert found_ids(Filters=[acme]) == ["Acme.Editor", "Acme.Store"]
    assert (
        found_ids() == found_ids(FetchAllManifests=True, Filters=[acme]) == ["Acme.Editor", "Acme.Store", "Other.Tool"]
    )


def test_an_empty_keyword_matches_every_value() -> None:
    assert found_ids(Query={"KeyWord": "", "MatchType": "Substring"}) == found_ids()
    assert found_ids(Filters=[search_of(Field.MONIKER, MatchType.SUBSTRING, "")]) == ["Acme.Editor"]


def test_derived_texts_of_a_segment_are_computed_once() -> None:
    for lines in (SEGMENT.texts, SEGMENT.codes):
        assert lines in (SEGMENT.texts, SEGMENT.codes)
        assert lines.squeezed is lines.squeezed


TEXTS = st.text(st.sampled_from("ab.É* "), min_size=1, max_size=6).filter(str.strip)


@pytest.mark.parametrize("long", [0, FILTER_THRESHOLD])
@given(names=st.lists(TEXTS, max_size=8), keyword=TEXTS)
def test_a_filtered_scan_finds_the_same_as_a_full_scan(long: int, names: list[str], keyword: str) -> None:
    entries = [make_entry(f"A.{number}", make_version(f"A.{number}"), name=name) for number, name in enumerate(names)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("catalog_service.winget.index.FILTER_THRESHOLD", long)
        segment = IndexSegment([record for entry in entries if (record := record_of(entry))])
    assert (segment.texts.filter is not None) is (long == 0)
    folded, small = keyword.casefold(), [name.casefold() for name in names]
    for kind, numbers in {
        MatchType.EXACT: [number for number, name in enumerate(names) if name == keyword],
        MatchType.CASE_INSENSITIVE: [number for number, name in enumerate(small) if name == folded],
        MatchType.STARTS_WITH: [number for number, name in enumerate(small) if name.startswith(folded)],
        MatchType.SUBSTRING: [number for number, name in enumerate(small) if folded in name],
        MatchType.FUZZY: [number for number, name in enumerate(small) if squeezed(name) == squeezed(folded)],
        MatchType.FUZZY_SUBSTRING: [number for number, name in enumerate(small) if squeezed(folded) in squeezed(name)],
    }.items():
        assert sorted(parse_and_match(segment, Filters=[search_of(Field.NAME, kind, keyword)])) == numbers


MATCHES = st.builds(
    lambda field, kind, keyword: Match(frozenset([field]), keyword, kind),
    st.sampled_from([Field.IDENTIFIER, Field.NAME, Field.NORMALIZED_NAME, Field.MARKET]),
    st.sampled_from(list(MatchType)),
    st.one_of(TEXTS, st.sampled_from("abA")),
)


@given(names=st.lists(TEXTS, max_size=8), either=st.lists(MATCHES, max_size=3), filters=st.lists(MATCHES, max_size=3))
def test_combined_matches_are_the_sets_of_single_ones(
    names: list[str], either: list[Match], filters: list[Match]
) -> None:
    entries = [make_entry(f"A.{number}", make_version(f"A.{number}"), name=name) for number, name in enumerate(names)]
    segment = IndexSegment([record for entry in entries if (record := record_of(entry))])

    def numbers_of(search: Search) -> list[int]:
        return list(asyncio.run(matching_numbers(search, segment, CooperativeYield())))

    expected = set(range(len(names)))
    for match in filters:
        expected &= set(numbers_of(Search(filters=(match,))))
    if either:
        expected &= {number for match in either for number in numbers_of(Search((match,)))}
    search = Search(tuple(either), tuple(filters))
    assert numbers_of(search) == sorted(expected)
    assert candidate_segments(search, [segment]) or not expected


def test_only_segments_with_a_needed_whole_value_are_searched() -> None:
    segments = [IndexSegment([record]) for record in SEGMENT.records]
    product_code = Match(frozenset([Field.PRODUCT_CODE]), CODE.lower(), MatchType.EXACT)
    tool = Match(frozenset([Field.NAME]), "Tool", MatchType.CASE_INSENSITIVE)
    part = Match(frozenset([Field.NAME]), "tool", MatchType.SUBSTRING)
    market = Match(frozenset([Field.MARKET]), "US", MatchType.EXACT)
    editor, store, other = segments
    for search, expected in (
        (Search((product_code, tool)), [editor, other]),
        (Search((product_code, part)), segments),
        (Search((product_code, tool), filters=(tool,)), [other]),
        (Search(filters=(product_code, tool)), []),
        (Search(filters=(market, part)), segments),
        (Search(), [editor, store, other]),
    ):
        assert list(candidate_segments(search, segments)) == expected


def test_many_matches_of_everything_cost_one_look_up_of_each_package(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"A.{number:03}" for number in range(100)]
    records = [record_of(make_entry(name, make_version(name))) for name in names]
    segment = IndexSegment([record for record in records if record])
    calls, find = 0, segment.finder

    def counted(line: str) -> Finder:
        finder = find(line)

        def first(number: int) -> int:
            nonlocal calls
            calls += 1
            return finder(number)

        return first

    monkeypatch.setattr(segment, "finder", counted)
    markets = [f"market{number}" for number in range(MAX_MATCHES)]
    search = Search(tuple(Match(frozenset([Field.MARKET]), market, MatchType.EXACT) for market in markets))
    numbers = asyncio.run(matching_numbers(search, segment, CooperativeYield()))
    assert list(numbers) == list(range(len(names)))
    assert calls <= 2 * len(markets) + len(names)


def test_only_segments_that_may_have_a_needed_piece_are_searched() -> None:
    def segment(name: str) -> IndexSegment:
        entries = [make_entry(f"{name}.{n:03}", make_version(f"{name}.{n:03}"), name=f"É {name}") for n in range(200)]
        return IndexSegment([record for entry in entries if (record := record_of(entry))])

    def search(keyword: str, kind: MatchType = MatchType.SUBSTRING, *, field: Field = Field.NAME) -> Match:
        return Match(frozenset([field]), keyword, kind)

    segments = painter, viewer = [segment("Painter"), segment("Viewer")]
    for looked_for, expected in (
        (Search((search("é vIEWer"),)), [viewer]),
        (Search((search("é viewer", MatchType.STARTS_WITH),)), [viewer]),
        (Search((search("viewer"), search("Painter.001", MatchType.EXACT, field=Field.IDENTIFIER))), segments),
        (Search((search("painter"),), filters=(search("viewer"),)), []),
        (Search((search("xyz"), search("vie?er*", MatchType.WILDCARD))), segments),
        (Search((search("xyz"), search("viewer", MatchType.FUZZY_SUBSTRING))), segments),
        (Search((search("xyz"), search("US", MatchType.EXACT, field=Field.MARKET))), segments),
        (Search((search(""),)), segments),
        (Search((search("ainter"),)), [painter]),
    ):
        assert list(candidate_segments(looked_for, segments)) == expected


def test_a_trigram_filter_accepts_parts_of_its_text() -> None:
    text = "".join(f"acme.tool{number}\n" for number in range(300))
    trigram_filter = TrigramFilter(text)
    assert all(trigram_filter.may_have(text[start : start + size]) for start in range(60) for size in range(12))
    assert (
        sum(trigram_filter.may_have(part) for part in ("editor", "vlc", "éditeur", "acme.fool", "lootool", "12.acme"))
        <= 1
    )
