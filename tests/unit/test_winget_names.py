"""Names of installed programs and of packages, made equal where they mean the same program."""

import pytest

from catalog_service.winget.names import normalized


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("Acme Editor", "acmeeditor"),
        ("ACME editor 2.1", "acmeeditor"),
        ("Acme Editor 2.1.0-beta", "acmeeditorbeta"),
        ("Acme Editor v2", "acmeeditor"),
        ("Acme Editor version 2.1 (build 7)", "acmeeditor"),
        ("Acme Editor (64-bit)", "acmeeditor"),
        ("Acme Editor x86", "acmeeditor"),
        ("Acme Editor 64-bit Edition", "acmeeditor"),
        ("Acme Editor (x64 de-DE)", "acmeeditor"),
        ("Acme Editor en-GB", "acmeeditor"),
        ("Acme Editor EN", "acmeeditor"),
        ("Acme Editor [Preview]", "acmeeditor"),
        ('"Acme Editor"', "acmeeditor"),
        ("(Acme Editor)", "acmeeditor"),
        ("Acme Editor@@de", "acmeeditor"),
        (r"Acme Editor in C:\Program Files\Acme", "acmeeditor"),
        ("Acme Inc. Editor", "acmeeditor"),
        ("Acme-Editor", "acmeeditor"),
        ("Acme Editor 7", "acmeeditor7"),
        ("C++ Tools & More", "c++tools&more"),
        ("Notepad++", "notepad"),
        ("Wi-Fi Tool", "wifitool"),
        ("Éditeur", "éditeur"),
        ("编辑器 2.0", "编辑器"),
        ("7.1", ""),
        ("", ""),
    ],
)
def test_what_says_no_more_than_which_release_it_is_is_left_out(name: str, left: str) -> None:
    assert normalized(name) == left


@pytest.mark.parametrize("name", ["(" * 5000, "1." * 5000, "a-" * 5000, "c:\\" + "a\\" * 2000, "v" * 5000, '"' * 5000])
def test_no_name_takes_long(name: str) -> None:
    assert isinstance(normalized(name[:256]), str)
