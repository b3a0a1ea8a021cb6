"""Subjects of certificates compare by their parts, never as texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.distinguished_names import is_same_name, parse_name
from tests.support.tables import each


@each(
    ("one", "other"),
    [
        ("CN=Acme", "cn=ACME"),
        ("CN=Acme,O=Acme", "CN=Acme, O=Acme"),
        ("CN=Acme,O=Acme", "CN=Acme;O=Acme"),
        ("CN=Acme  Inc", " CN = Acme Inc "),
        (r"CN=Acme\, Inc.", 'CN="Acme, Inc."'),
        (r"CN=Acme\, Inc.", r"CN=Acme\2C Inc."),
        (r"CN=M\C3\BCller", "CN=Müller"),
        ("CN=a+OU=b", "OU=b+CN=a"),
        ("2.5.4.3=Acme", "CN=Acme"),
        ("OID.2.5.4.3=Acme", "CN=Acme"),
        ("E=a@b.example", "1.2.840.113549.1.9.1=a@b.example"),
        ("S=Bayern", "ST=bayern"),
    ],
)
def test_spellings_of_one_name_are_the_same(one: str, other: str) -> None:
    assert is_same_name(one, other)


@each(
    ("one", "other"),
    [
        ("CN=Acme", "CN=Acme,O=Acme"),
        ("CN=Acme,O=Acme", "O=Acme,CN=Acme"),
        ("CN=Acme", "CN=Acmes"),
        ("CN=Acme", "OU=Acme"),
        (r"CN=Acme\,O=Evil", "CN=Acme,O=Evil"),
        ("CN=Acme,CN=Evil", "CN=Acme"),
        ("CN=a+OU=b", "CN=a,OU=b"),
        ('CN="Acme,O=Acme"', "CN=Acme,O=Acme"),
        ("CN=Acme", ""),
        ("", ""),
        ("Acme", "Acme"),
    ],
)
def test_other_names_are_not_the_same(one: str, other: str) -> None:
    assert not is_same_name(one, other)


@each("text", ["", "Acme", "CN", "=Acme", "CN=a,", "CN=a,,O=b", "CN=a,O", 'CN="a', "CN=a\\", 'CN="a"b', "1=a"])
def test_a_text_that_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        parse_name(text)


@given(st.text())
def test_any_text_is_a_name_or_refused(text: str) -> None:
    assert is_same_name(text, text) in {True, False}


@given(st.text(min_size=1), st.text(min_size=1))
def test_escaped_values_are_compared_without_letter_case(one: str, other: str) -> None:
    def name(text: str) -> str:
        return "CN=" + "".join(f"\\{byte:02X}" for byte in text.encode())

    assert is_same_name(name(one), name(other)) == (one.casefold().split() == other.casefold().split())
