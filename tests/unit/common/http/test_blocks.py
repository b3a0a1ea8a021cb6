"""Blocks are sent and read as one body, whatever each of them is."""

import os
import tempfile
from contextlib import suppress

import pytest

from common.http.zero_copy.sources import Block, BlockSource, FileRange, Side, move, read_blocks


def test_bytes_and_parts_of_files_are_sent_in_their_order() -> None:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        parts = FileRange(file, 3, 4), FileRange(file, 5, 0), FileRange(file, 9, 1)
        blocks: list[Block] = [b"", b"[first", parts[0], b",", parts[1], parts[2], b"]"]
        source = BlockSource(blocks)
        with suppress(EOFError):
            while True:
                source.move(writing, 3)
        os.close(writing)
        assert os.read(reading, 100) == read_blocks(blocks) == b"[first3456,9]"
    os.close(reading)


def test_bytes_before_an_early_end_are_counted() -> None:
    reading, writing = os.pipe()
    source = BlockSource([b"one", b"two"])
    assert move(source, writing, 100) == (6, Side.SOURCE)
    with pytest.raises(EOFError):
        move(source, writing, 94)
    assert os.read(reading, 100) == b"onetwo"
    os.close(reading)
    os.close(writing)
