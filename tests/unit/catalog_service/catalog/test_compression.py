"""Responses joined from parts decode to the same JSON array with every decoder."""

import gzip
import json
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.catalog.compression import ENCODINGS, PLAIN, Encoding
from common.http.zero_copy.sources import read_blocks
from tests.support.tables import each

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSED = GZIP, ZSTD = ENCODINGS["gzip"], ENCODINGS["zstd"]
TEXTS = st.lists(st.text(max_size=50).map(lambda text: json.dumps(text).encode()), max_size=5)
LARGE = b'"' + b"0123456789abcdef" * 200_000 + b'"'  # several uncompressed blocks and frames


def decoded(encoding: Encoding, data: bytes) -> bytes:
    match encoding.name:
        case "gzip":
            return gzip.decompress(data)
        case "zstd":
            return zstd.decompress(data)
    return data


@pytest.mark.parametrize("encoding", [PLAIN, *COMPRESSED], ids=lambda encoding: encoding.name or "plain")
@given(texts=TEXTS, wrapped=st.sets(st.integers(0, 4)))
def test_joined_parts_decode_to_one_array(encoding: Encoding, texts: list[bytes], wrapped: set[int]) -> None:
    parts = [encoding.wrap(text) if number in wrapped else encoding.pack(text) for number, text in enumerate(texts)]

    assert decoded(encoding, read_blocks(encoding.joined(parts))) == b"[" + b",".join(texts) + b"]"


@each("encoding", COMPRESSED, ids=lambda encoding: encoding.name)
@each("packed", [True, False])
def test_parts_may_be_of_any_size(encoding: Encoding, packed: bool) -> None:
    part = encoding.pack(LARGE) if packed else encoding.wrap(LARGE)

    assert decoded(encoding, read_blocks(encoding.joined([part, part]))) == b"[" + LARGE + b"," + LARGE + b"]"


def test_a_gzip_response_is_one_member() -> None:
    """A decoder that stops after the first member still gets everything."""
    decoder = zlib.decompressobj(31)
    parts = [GZIP.pack(b'"a"'), GZIP.wrap(b'"b"')]

    assert decoder.decompress(read_blocks(GZIP.joined(parts))) == b'["a","b"]'
    assert decoder.eof
    assert decoder.unused_data == b""


def test_a_zstd_frame_has_a_window_of_at_most_8_mib() -> None:
    for part in (ZSTD.pack(LARGE * 4), ZSTD.wrap(LARGE * 4)):
        decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})
        decoder.decompress(read_blocks(part.blocks), max_length=1 << 20)
