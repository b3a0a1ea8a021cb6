"""Bytes that come again, held against the ones that are stored."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing


async def same_bytes(blocks: AsyncIterator[bytes], stored: AsyncGenerator[bytes, None]) -> bool:
    """Whether both are the same bytes; `blocks` is read to its end in any case."""
    same, known = True, bytearray()
    async with aclosing(stored):
        async for block in blocks:
            while same and len(known) < len(block):
                more = await anext(stored, b"")
                known += more
                same = bool(more)
            same = same and known.startswith(block)
            del known[: len(block)]
    return same
