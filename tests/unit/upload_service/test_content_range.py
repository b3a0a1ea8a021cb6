"""The headers of a chunk (section 4.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidRequest
from tests.support.tables import each
from upload_service.model import MAX_TOTAL, SUFFIXES, ContentRange, parse_file_id, parse_server_filename, suffix_of

NAME = "0123456789abcdef" * 2


@each("text", ["a", "7", "A.b_c~d+e=f@g-h", "upload-2024.part", "x" * 128])
def test_a_valid_file_id_is_unchanged(text: str) -> None:
    assert parse_file_id([text]) == text


@each(
    "text",
    [
        "",
        ".",
        "..",
        "../../x",
        "a/b",
        "a\\b",
        "~a",
        " a",
        "a\0b",
        "a\n",
        "x" * 129,
        "\udcff",
        "\u0430bc",  # a Cyrillic letter like a Latin one
        "a%2fb",
        "a:b",
    ],
)
def test_a_file_id_that_could_leave_its_folder_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_file_id([text])


@each("values", [[], ["a", "a"], ["a", "b"]])
def test_a_file_id_is_sent_once(values: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        parse_file_id(values)


@each(
    ("text", "expected"),
    [
        ("bytes 0-0/1", ContentRange(0, 0, 1)),
        ("bytes 0-99/100", ContentRange(0, 99, 100)),
        ("bytes 100-199/1000", ContentRange(100, 199, 1000)),
        ("bytes 007-8/9", ContentRange(7, 8, 9)),
        (f"bytes 0-1/{MAX_TOTAL}", ContentRange(0, 1, MAX_TOTAL)),
    ],
)
def test_a_content_range_names_bytes_of_a_file(text: str, expected: ContentRange) -> None:
    assert ContentRange.parse([text]) == expected


@each(
    "text",
    [
        "",
        "bytes */100",
        "bytes 0-9/*",
        "bytes -1-9/10",
        "bytes 9-0/10",
        "bytes 0-10/10",
        "bytes 0-0/0",
        "bytes +0-9/10",
        "bytes 0_0-9/10",
        "bytes \uff10-9/10",
        f"bytes 0-9/{10**30}",
        f"bytes 0-9/{MAX_TOTAL + 1}",
        "items 0-9/10",
        "Bytes 0-9/10",
        "bytes 0-9/10 ",
        "bytes  0-9/10",
        "bytes 0-9/10, bytes 0-9/10",
        "bytes 0-9/10\n",
    ],
)
def test_a_content_range_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        ContentRange.parse([text])


@each("values", [[], ["bytes 0-9/10", "bytes 0-9/10"]])
def test_a_content_range_is_sent_once(values: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        ContentRange.parse(values)


@given(st.integers(0, 2 * MAX_TOTAL), st.integers(0, 2 * MAX_TOTAL), st.integers(0, 2 * MAX_TOTAL))
def test_a_content_range_lies_inside_its_file_or_is_refused(start: int, end: int, total: int) -> None:
    inside = start <= end < total <= MAX_TOTAL
    try:
        span = ContentRange.parse([f"bytes {start}-{end}/{total}"])
    except InvalidRequest:
        assert not inside
    else:
        assert inside
        assert (span.start, span.end, span.total) == (start, end, total)
        assert span.length == end - start + 1
        assert span.is_last == (end == total - 1)


@each("suffix", SUFFIXES)
def test_a_stored_file_is_known_by_its_name(suffix: str) -> None:
    assert parse_server_filename(NAME + suffix) == NAME + suffix


@each(
    "text",
    [
        "",
        "../../x",
        NAME.upper(),
        NAME + "0",
        NAME + ".sh",
        f"a/{NAME}",
        NAME + "\n",
    ],
)
def test_a_foreign_file_name_is_no_server_filename(text: str) -> None:
    assert parse_server_filename(text) is None


@each(
    ("file_name", "suffix"),
    [
        ("Setup.EXE", ".exe"),
        ("a.b.msi", ".msi"),
        ("app.msixbundle", ".msixbundle"),
        ("archive.zip", ".zip"),
        ("Sans.OTC", ".otc"),
        ("script.sh", ""),
        ("", ""),
        (".exe", ""),
        ("../../x.exe/..", ""),
    ],
)
def test_only_the_suffix_of_an_installer_is_kept(file_name: str, suffix: str) -> None:
    assert suffix_of(file_name) == suffix


def test_only_the_range_with_the_last_byte_completes_the_file() -> None:
    assert [ContentRange.parse([f"bytes 0-{end}/10"]).is_last for end in (7, 8, 9)] == [False, False, True]
