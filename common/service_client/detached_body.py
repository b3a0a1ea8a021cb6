"""The body of a streamed response that the system moves, so that aiohttp does not read it."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from aiohttp.connector import Connection

from common.concurrency.byte_sources import CAN_SPLICE
from common.service_client.transport import Response


class DetachedBody(NamedTuple):
    """The blocks that were received already, and the connection on which the `rest` bytes arrive, if any."""

    blocks: Sequence[bytes]
    connection: asyncio.Transport | None
    rest: int


def detach_body(response: Response, length: int) -> DetachedBody | None:
    """Stop aiohttp's reading of a body with this length; None if the system cannot move bytes.

    The connection ends with the response. Raises EOFError, or what else ended the body early.
    """
    if not CAN_SPLICE or _is_encrypted(response.connection):
        return None
    blocks = list(iter(response.content.read_nowait, b""))  # This may resume the reading.
    connection, rest = response.connection, length - response.content.total_bytes
    if not rest:
        return DetachedBody(blocks, None, 0)
    if connection is None or connection.protocol is None or connection.transport is None:
        raise EOFError
    connection.protocol.pause_reading()
    return DetachedBody(blocks, connection.transport, rest)


def _is_encrypted(connection: Connection | None) -> bool:
    """Whether the bytes on a connection are not those of the body."""
    transport = connection.transport if connection else None
    return transport is not None and transport.get_extra_info("sslcontext") is not None
