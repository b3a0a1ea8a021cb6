"""Receives catalogs into memory, or large ones into files, from which the system sends them.

A file has no name and ends with its process. It is on disk, where large pages cost the least to send. It is in memory
if the temporary folder has little room, as in a container, or is missing.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO, cast

from aiohttp import ClientError, ClientPayloadError

from common.http.zero_copy.responses import detach_body
from common.http.zero_copy.sources import splice_to_file
from common.service_client.client import BLOCK_TIMEOUT, Response
from common.telemetry import log

BLOCK = 256 << 10  # bytes; a longer catalog is in a file
RESERVE = 1 << 30  # bytes of the temporary folder that stay free


class NotStored(Exception):
    """The system has no room or no descriptor for a file."""


async def receive_body(response: Response, length: int) -> bytes | BinaryIO:
    """A body with this length. Raises ClientError, TimeoutError or NotStored."""
    if length <= BLOCK:
        return b"".join([block async for block in response.content.iter_any()])
    try:
        file = await asyncio.to_thread(open_file, length)
        try:
            await _write(response, length, file)
        except BaseException:
            close_in_thread(file)
            raise
    except (ClientError, TimeoutError):
        raise  # Some of them are an OSError, too.
    except OSError as error:
        log.error("catalog_not_stored", error=repr(error))
        raise NotStored from error
    return file


async def _write(response: Response, length: int, file: BinaryIO) -> None:
    try:
        if body := detach_body(response, length):
            await asyncio.to_thread(_write_blocks, file, body.blocks)
            if body.connection:
                await splice_to_file(body.connection, file, body.rest, timeout=BLOCK_TIMEOUT)
        else:
            async for block in response.content.iter_any():
                await asyncio.to_thread(_write_blocks, file, [block])
    except EOFError:
        raise ClientPayloadError("The catalog ended early.") from None


def _write_blocks(file: BinaryIO, blocks: Sequence[bytes]) -> None:
    file.writelines(blocks)
    file.flush()


def open_file(length: int) -> BinaryIO:
    """An empty file for so many bytes."""
    if not hasattr(os, "memfd_create"):
        return cast("BinaryIO", TemporaryFile())
    with suppress(OSError):  # There is no temporary folder, or it is read-only.
        folder = os.statvfs(gettempdir())
        if folder.f_bavail * folder.f_frsize >= length + RESERVE:
            return cast("BinaryIO", TemporaryFile())
    return os.fdopen(os.memfd_create("catalog"), "w+b")


def close_in_thread(file: BinaryIO) -> None:
    """Close a file. The system frees its pages, which takes milliseconds."""
    with suppress(RuntimeError):  # There is no event loop at the end of the process.
        asyncio.get_running_loop().run_in_executor(None, file.close)
        return
    file.close()
