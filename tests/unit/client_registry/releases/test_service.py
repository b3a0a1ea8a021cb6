"""Versions of the client program are four numbers, as on Windows."""

import pytest

from client_registry.releases.service import release_version
from common.errors import InvalidField
from tests.support.tables import each


@each(
    ("text", "version"),
    [("1.4.0.2", "1.4.0.2"), ("0.0.0.0", "0.0.0.0"), ("65535.65535.65535.65535",) * 2, ("01.002.0.00", "1.2.0.0")],
)
def test_a_version_has_four_numeric_parts(text: str, version: str) -> None:
    assert release_version("version", text) == version


@each(
    "text",
    [
        "",
        "1",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.65536",
        "1.2.3.x",
        "1.2.3.-4",
        "v1.2.3.4",
        "1.2.3.4 ",
        "1..2.3",
        "1.2.3.\uff14",
    ],
)
def test_a_version_without_four_numbers_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^version: "):
        release_version("version", text)
