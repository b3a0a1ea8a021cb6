"""The identities of packages and versions: names that a winget client searches for, and the order of versions."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.identities import LIMIT, IdentityKind, normalized
from catalog_service.model.manifest import AppsAndFeaturesEntry, LocalTexts
from catalog_service.model.versions import VersionName, VersionOrder, newest_first
from catalog_service.winget.index import CODES, Field, record_of
from tests.support.samples.winget_factories import make_entry, make_version
from tests.support.tables import each

KIND_OF = {
    Field.PRODUCT_CODE: IdentityKind.PRODUCT_CODE,
    Field.UPGRADE_CODE: IdentityKind.UPGRADE_CODE,
    Field.FAMILY_NAME: IdentityKind.FAMILY_NAME,
    Field.NORMALIZED_NAME: IdentityKind.NAME,
}
TEXTS = st.sampled_from(["", "{AB}", "{ab}", "Straße", "STRASSE", "Editor 2.1 (x64)", "editor", "İ", "ﬁle", "(x64)"])
ENTRIES = st.builds(AppsAndFeaturesEntry, display_name=TEXTS, product_code=TEXTS, upgrade_code=TEXTS)


@given(st.tuples(TEXTS, TEXTS, TEXTS), st.lists(ENTRIES, max_size=3), st.text(min_size=1, max_size=20), TEXTS)
def test_the_search_index_has_exactly_the_identities(
    codes: tuple[str, str, str], entries: list[AppsAndFeaturesEntry], name: str, local_name: str
) -> None:
    """Otherwise winget would find a package by something that two packages may have."""
    product_code, upgrade_code, family_name = codes
    own = {"product_code": product_code, "upgrade_code": upgrade_code, "package_family_name": family_name}
    version = make_version(**own, apps_and_features_entries=tuple(entries))
    local = LocalTexts(package_locale="de-DE", package_name=local_name)
    entry = make_entry("Acme.Editor", version, name=name, locales=(local,))

    record = record_of(entry)

    indexed = {
        f"{kind}:{line.removeprefix(field.mark)}"
        for line in (record.codes if record else ())
        for field, kind in KIND_OF.items()
        if line.startswith(field.mark)
    }
    package = entry.package.identities
    identities = {*version.identities, *package["identities"], *package["local_identities"]}
    assert indexed == (identities if record else set())


def test_every_code_that_identifies_a_program_is_an_identity() -> None:
    assert KIND_OF.keys() == CODES | {Field.NORMALIZED_NAME}


def test_an_identity_has_one_spelling() -> None:
    entry = AppsAndFeaturesEntry(product_code="{AB}", display_name="Editor 1.0")
    version = make_version(product_code="{ab}", apps_and_features_entries=(entry,))
    assert json.dumps(version.identities) == '["package_name:editor", "productcode:{ab}"]'


numbers = st.lists(st.integers(min_value=0, max_value=10**12), min_size=1, max_size=6)
texts = st.one_of(
    numbers.map(lambda parts: ".".join(map(str, parts))), st.text(alphabet="0123456789.-abRC ", max_size=20)
)


@each(
    ("older", "newer"),
    [
        ("1.9", "1.10"),
        ("9", "10"),
        ("1.0", "1.0.1"),
        ("1.0-beta", "1.0"),
        ("1.0.0-beta", "1"),
        ("1.0-alpha", "1.0-BETA"),
        ("v1.2", "v1.10"),
        ("2023.12.1", "2024.1"),
        ("1.0.9999999999999999999998", "1.0.9999999999999999999999"),
        ("beta", "1"),
    ],
)
def test_versions_compare_by_their_numeric_parts(older: str, newer: str) -> None:
    assert VersionOrder(older) < VersionOrder(newer)


@each(("first", "second"), [("1.2", "1.2.0"), ("v1.2", "1.2"), ("1.02", "1.2"), ("", "0"), ("1.RC", "1.rc")])
def test_versions_with_different_spellings_are_equal(first: str, second: str) -> None:
    assert VersionOrder(first) == VersionOrder(second)
    assert hash(VersionOrder(first)) == hash(VersionOrder(second))


@given(numbers, numbers)
def test_numeric_versions_compare_as_sequences_of_numbers(first: list[int], second: list[int]) -> None:
    def version(parts: list[int]) -> VersionOrder:
        return VersionOrder(".".join(map(str, parts)))

    longest = max(len(first), len(second))
    padded_left, padded_right = (parts + [0] * (longest - len(parts)) for parts in (first, second))
    assert (version(first) < version(second)) == (padded_left < padded_right)


@given(texts, texts, texts)
def test_the_order_is_total_and_transitive(first: str, second: str, third: str) -> None:
    a, b, c = VersionOrder(first), VersionOrder(second), VersionOrder(third)
    assert [a < b, a == b, b < a].count(True) == 1
    if a <= b <= c:
        assert a <= c


@given(st.lists(texts, max_size=8), st.randoms(use_true_random=False))
def test_newest_first_does_not_depend_on_the_input_order(versions: list[str], shuffle: random.Random) -> None:
    given_order = [VersionName("", version, str(index)) for index, version in enumerate(versions)]
    shuffled = list(given_order)
    shuffle.shuffle(shuffled)

    assert newest_first(shuffled) == newest_first(given_order)


def test_the_newest_comes_first() -> None:
    versions = [VersionName("", version, "") for version in ("1.9", "1.10", "1.10-rc1", "2.0")]

    assert [version.version for version in newest_first(versions)] == ["2.0", "1.10", "1.10-rc1", "1.9"]


# Parts of names that the patterns match, complete and incomplete.
PIECES = ["(", ")", "[", "]", '"', "(c:\\", '"c:\\', "c:\\", "a\\", " ", "en ", "1.", "v1", "!", "a1.1", "x64", "é"]


@each(
    ("name", "expected"),
    [
        # Letters, digits and symbols
        ("Acme Editor", "acmeeditor"),
        ("Acme-Editor", "acmeeditor"),
        ("编辑器 2.0", "编辑器"),
        ("\uff21cme\u3000Editor", "acmeeditor"),
        ("Acme Editor™", "acmeeditortm"),
        ("Acme Editor®", "acmeeditor"),
        ("Notepad++", "notepad"),
        ("7.1", ""),
        # Digits at the beginning and the end
        ("7-Zip 19.00 (x64 edition)", "7zip"),
        ("4K Stogram", "4kstogram"),
        ("360安全卫士", "360安全卫士"),
        ("Acme Editor 7", "acmeeditor7"),
        # Versions
        ("ACME editor 2.1", "acmeeditor"),
        ("Acme Editor 2.1.0-beta", "acmeeditor"),
        ("Acme Editor 8_8_2 Gold", "acmeeditorgold"),
        ("Acme Editor 1.8.0_252-2-acmebuild", "acmeeditor"),
        ("Acme Editor 6.5.1-6299 Gold", "acmeeditorgold"),
        ("Acme 9-2020-q2-update 9 2020", "acme92020"),
        ("Acme Editor 7.0.0h", "acmeeditor"),
        ("Acme Editor amd64 ed1.15beta1", "acmeeditored"),
        ("Acme3 py37_4.8.3", "acme3py"),
        ("Acme Editor v2", "acmeeditor"),
        ("Acme Editor v. 6.21.2", "acmeeditorv"),
        ("Acme Editor version 2.1 (build 7)", "acmeeditor"),
        ("Acme Editor versión 2.1", "acmeeditor"),
        ("Acme Editor r1.6", "acmeeditor"),
        ("Acme 2008R2Plus", "acme2008plus"),
        ("Acme 2020 v10.6.0915a Trial", "acme2020atrial"),
        ("编辑器 版1.2.3", "编辑器版"),
        # Architectures
        ("Acme Editor (64-bit)", "acmeeditor"),
        ("Acme Editor x86-64", "acmeeditor"),
        ("Acme Editor 64bit", "acmeeditor"),
        ("Acme Editor 64-bit Edition", "acmeeditor"),
        ("Acme Editor 3.3, 32/64 bit", "acmeeditor"),
        (r"Acme Editor 3.0, 32\64 bit edition", "acmeeditor"),
        ("Acme64", "acme64"),
        ("Acme x64 64-bit", "acme64bit"),
        # Languages
        ("Acme Editor (x64 de-DE)", "acmeeditor"),
        ("Acme Editor en-GB", "acmeeditor"),
        ("Acme Editor sr-Latn-RS", "acmeeditor"),
        ("Acme Editor xx-YY", "acmeeditorxxyy"),
        ("Acme Editor EN", "acmeeditor"),
        # Brackets and quotes
        ("Acme Editor [Preview]", "acmeeditor"),
        ("Acme Editor (a (b) c) Gold", "acmeeditorgold"),
        ("Acme Editor ( Gold", "acmeeditorgold"),
        ("(Acme Editor)", "acmeeditor"),
        ('Acme "Gold" Editor', "acmeeditor"),
        ("Acme Update (KB2504637)", "acmeupdatekb2504637"),
        # Paths and addresses
        (r"Acme Editor in C:\Program Files\Acme", "acmeeditor"),
        (r"Acme Editor (C:\Apps) Gold", "acmeeditorgold"),
        ("Acme http://acme.example Editor", "acmeacmeexampleeditor"),
        # Legal forms: any word but the first
        ("Acme Inc. Editor", "acmeeditor"),
        ("Inc Editor", "inceditor"),
        # Names with rules of their own
        ("Acme Editor@@de", "acmeeditor"),
        ("Roblox Player for wile", "robloxplayer"),
        ("Bomgar Jump Client of wile", "bomgarjumpclient"),
        ("AB.CD_EF-4.1.2-EN-32", "ab.cd_ef-4.1.2-en-32"),
    ],
)
def test_name_is_normalised_as_by_the_client(name: str, expected: str) -> None:
    assert normalized(name) == expected


@each("name", ["a" + "!" * 12_000 + "a", "(" * 12_000, '"c:\\a' * 3_000, "1." * 6_000 + "x"])
def test_characters_beyond_the_limit_do_not_count(name: str) -> None:
    assert normalized(name) == normalized(name[:LIMIT])


def test_name_that_grows_in_normal_form_is_truncated_at_the_limit() -> None:
    assert len(normalized("\ufdfa" * LIMIT)) <= LIMIT


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=400).map("".join))
def test_any_name_is_normalised_by_its_first_characters_only(name: str) -> None:
    assert normalized(name) == normalized(name[:LIMIT])
