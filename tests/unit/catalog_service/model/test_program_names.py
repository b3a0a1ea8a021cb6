"""Normalised names: the server removes the same parts of a package's name as the client does of a program's name."""

from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.identities import LIMIT, normalized
from tests.support.tables import each

# Parts of names that the patterns match, complete and incomplete.
PIECES = [
    "(",
    ")",
    "[",
    "]",
    '"',
    "(c:\\",
    '"c:\\',
    "c:\\",
    "a\\",
    " ",
    "en ",
    "1.",
    "v1",
    "!",
    "a1.1",
    "x64",
    "(c:\\ ",
    "é",
]


@each(
    ("name", "expected"),
    [
        # Letters, digits and symbols
        ("Acme Editor", "acmeeditor"),
        ("Acme-Editor", "acmeeditor"),
        ("Éditeur", "éditeur"),
        ("编辑器 2.0", "编辑器"),
        ("\uff21cme\u3000Editor", "acmeeditor"),
        ("Acme Editor™", "acmeeditortm"),
        ("Acme Editor®", "acmeeditor"),
        ("C++ Tools & More", "ctoolsmore"),
        ("Notepad++", "notepad"),
        ("7.1", ""),
        ("", ""),
        # Digits at the beginning and the end
        ("7-Zip 19.00 (x64 edition)", "7zip"),
        ("4K Stogram", "4kstogram"),
        ("0 A.D.", "0ad"),
        ("360安全卫士", "360安全卫士"),
        ("Acme Editor 7", "acmeeditor7"),
        ("- Acme Editor -", "acmeeditor"),
        # Versions
        ("ACME editor 2.1", "acmeeditor"),
        ("Acme Editor 2.1.0-beta", "acmeeditor"),
        ("Acme Editor 2.3.2-snapshot", "acmeeditor"),
        ("Acme Editor 8_8_2 Gold", "acmeeditorgold"),
        ("Acme Editor 1.8.0_252-2-acmebuild", "acmeeditor"),
        ("Acme Editor 5.1.5_1", "acmeeditor"),
        ("Acme Editor 6.5.1-6299 Gold", "acmeeditorgold"),
        ("Acme 9-2020-q2-update 9 2020", "acme92020"),
        ("Acme Editor 7.0.0h", "acmeeditor"),
        ("Acme Editor amd64 ed1.15beta1", "acmeeditored"),
        ("Acme3 py37_4.8.3", "acme3py"),
        ("Acme Editor v2", "acmeeditor"),
        ("Acme Editor v. 6.21.2", "acmeeditorv"),
        ("Acme Editor version 2.1 (build 7)", "acmeeditor"),
        ("Acme Editor versión 2.1", "acmeeditor"),
        ("Acme Editor r8942", "acmeeditor"),
        ("Acme Editor r1.6", "acmeeditor"),
        ("Acme 2008R2Plus", "acme2008plus"),
        ("Acme 2020 v10.6.0915a Trial", "acme2020atrial"),
        ("编辑器 版1.2.3", "编辑器版"),
        # Architectures
        ("Acme Editor (64-bit)", "acmeeditor"),
        ("Acme Editor x86", "acmeeditor"),
        ("Acme Editor x86-64", "acmeeditor"),
        ("Acme Editor 64bit", "acmeeditor"),
        ("Acme Editor (64 bits)", "acmeeditor"),
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
        ('"Acme Editor"', "acmeeditor"),
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
