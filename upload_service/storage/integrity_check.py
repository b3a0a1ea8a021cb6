"""Comparison of a stored installer with the digest of its upload."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from upload_service.model import Upload
from upload_service.storage.filesystem import InstallerStorage

AfterBlock = Callable[[int], Awaitable[None]]


async def has_same_digest(storage: InstallerStorage, upload: Upload, after_block: AfterBlock) -> bool:
    """Read a file to its end; `after_block` is called with the length of each block.

    Raises InstallerMissing and Unavailable.
    """
    digest = hashlib.sha256()
    async with aclosing(storage.read(upload, 0, upload.size)) as blocks:
        async for block in blocks:
            await asyncio.to_thread(digest.update, block)
            await after_block(len(block))
    return digest.hexdigest() == upload.sha256
