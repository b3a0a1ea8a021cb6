"""Blocks are sent and read as one body, whatever each of them is."""

import os
import tempfile
from contextlib import suppress

from common.http.zero_copy.sources import Block, BlockSource, FileRange, read_blocks


def test_bytes_and_parts_of_files_are_sent_in_their_order() -> None:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        blocks: list[Block] = [
            b"",
            b"[first",
            FileRange(file, 3, 4),
            b",",
            FileRange(file, 5, 0),
            FileRange(file, 9, 1),
            b"]",
        ]
        source = BlockSource(blocks)

        with suppress(EOFError):
            while True:
                source.move(writing, 3)
        os.close(writing)

        assert os.read(reading, 100) == read_blocks(blocks) == b"[first3456,9]"
    os.close(reading)
