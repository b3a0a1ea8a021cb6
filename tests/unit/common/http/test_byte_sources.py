"""Bytes that are moved between descriptors are counted exactly."""

import os

import pytest

from common.http.zero_copy.sources import BlockSource, Side, move


def test_bytes_before_an_early_end_are_counted() -> None:
    reading, writing = os.pipe()
    try:
        source = BlockSource([b"one", b"two"])
        assert move(source, writing, 100) == (6, Side.SOURCE)
        with pytest.raises(EOFError):
            move(source, writing, 94)
        assert os.read(reading, 100) == b"onetwo"
    finally:
        os.close(reading)
        os.close(writing)
