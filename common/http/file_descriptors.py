"""Connections and pipes as the system has them: under their numbers, past the transports of the event loop."""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PIPE = 256 << 10  # bytes on their way from one connection to another

Watch = Callable[..., object]


def splice_nonblocking(source: int, sink: int, most: int) -> int:
    return os.splice(source, sink, most, flags=os.SPLICE_F_NONBLOCK)


@contextmanager
def duplicate(transport: asyncio.BaseTransport) -> Iterator[int]:
    """The connection under a descriptor of its own: its loop keeps the transport's for the transport."""
    descriptor = os.dup(transport.get_extra_info("socket").fileno())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        with suppress(OSError):  # Who has many pipes may have small ones only.
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    await _event(loop.add_reader, loop.remove_reader, descriptor)


async def writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    await _event(loop.add_writer, loop.remove_writer, descriptor)


async def _event(watch: Watch, unwatch: Watch, descriptor: int) -> None:
    """Wait until a descriptor can be read or written."""
    came = asyncio.Event()
    watch(descriptor, came.set)
    try:
        await came.wait()
    finally:
        unwatch(descriptor)


def unsent(descriptor: int) -> int:
    """Bytes that wait in the system for who takes them, as far as it tells."""
    with suppress(OSError):
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    return 0
