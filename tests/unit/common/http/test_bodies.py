"""Content negotiation and conditional requests (RFC 9110)."""

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from common.http.bodies import CODINGS, if_none_match, negotiate_encoding
from tests.support.tables import each

TAG = 'W/"7-a"'


def request_with(name: str, *values: str) -> web.Request:
    return make_mocked_request("POST", "/", CIMultiDict((name, value) for value in values))


@each(
    ("accepted", "coding"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("zstd, gzip", "gzip"),
        ("gzip;q=0.5, zstd;q=0.8", "zstd"),
        ("gzip;q=0, zstd", "zstd"),
        ("gzip;q=0", ""),
        ("gzip;q=0.000", ""),
        ("gzip; q=0.1, identity", ""),
        ("gzip;q=0.1, identity;q=0", "gzip"),
        ("identity;q=0", ""),
        ("deflate, br", ""),
        ("*", "gzip"),
        ("br, *;q=0.1", "gzip"),
        ("gzip;q=0, *", "zstd"),
        ("*;q=0", ""),
        ("identity, *;q=0.5", ""),
        ("gzip;q=high", "gzip"),
        (" gzip ; q = 0.5 ,\tzstd\t", "zstd"),
        ("a," + " " * 100_000 + ",gzip", "gzip"),
        (";;,=q", ""),
    ],
)
def test_the_most_preferred_encoding_is_chosen(accepted: str, coding: str) -> None:
    assert negotiate_encoding(request_with("Accept-Encoding", accepted)) == coding


def test_repeated_headers_are_one_list() -> None:
    assert negotiate_encoding(request_with("Accept-Encoding", "gzip;q=0.5", "zstd")) == "zstd"
    assert if_none_match(request_with("If-None-Match", '"x"', TAG), TAG)


def test_a_request_without_headers_gets_the_plain_body() -> None:
    assert negotiate_encoding(make_mocked_request("POST", "/")) == ""
    assert not if_none_match(make_mocked_request("POST", "/"), TAG)
    assert "" not in CODINGS


@each("condition", [TAG, '"7-a"', f'"x", {TAG}', f'W/"x",{TAG} , "y"', "*", " * "])
@each("tag", [TAG, '"7-a"'])
def test_a_matching_etag_needs_no_body(condition: str, tag: str) -> None:
    assert if_none_match(request_with("If-None-Match", condition), tag)


@each("condition", ["", '"7"', '"x", W/"y"', "7-a", 'W/"7-a', '"*"', '*, "x"', '""'])
@each("tag", [TAG, ""])
def test_another_etag_gets_the_body(condition: str, tag: str) -> None:
    assert not if_none_match(request_with("If-None-Match", condition), tag)
