"""The minimal costs of this machine for hashing, writing and receiving, as references."""

import hashlib
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from auth_service.users.service import Passwords

MIB = 1 << 20
GB = 1_000_000_000
BLOCK = os.urandom(MIB)
WHOLE = "receive + hash + write"


def measure_limits(folder: Path, size: int) -> dict[str, float]:
    """Measure the CPU seconds per GB of each with `size` MiB. Files are written in `folder`."""

    def cost(work: Callable[[], object]) -> float:
        before = time.process_time()
        work()
        return (time.process_time() - before) / (size * MIB) * GB

    return {
        "SHA-256": cost(lambda: _hash(size)),
        "page cache + fsync": cost(lambda: _write(folder / "limit", size)),
        "loopback, both ends": cost(lambda: _receiving_cost(size, lambda _: None)),
        WHOLE: _storing_cost(folder / "limit", size) / (size * MIB) * GB,
    }


async def password_hash(times: int) -> float:
    """The CPU milliseconds of one comparison with a password hash."""
    passwords = Passwords()
    before = time.process_time()
    for _ in range(times):
        await passwords.compare(None, "not the password")
    return (time.process_time() - before) / times * 1000


def _hash(size: int) -> None:
    digest = hashlib.sha256()
    for _ in range(size):
        digest.update(BLOCK)


def _write(path: Path, size: int) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(size):
            file.write(BLOCK)
        os.fsync(file.fileno())
    path.unlink()


def _storing_cost(path: Path, size: int) -> float:
    """The CPU seconds of a receiver that hashes and writes the data."""
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:

        def handle_block(block: memoryview) -> None:
            digest.update(block)
            file.write(block)

        spent = _receiving_cost(size, handle_block)
    path.unlink()
    return spent


def _receiving_cost(size: int, handle_block: Callable[[memoryview], None]) -> float:
    """Send over loopback. Returns the CPU seconds of the receiver."""
    buffer = memoryview(bytearray(MIB))
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = Thread(target=_send, args=(*server.getsockname(), size))
        before = _thread_seconds()
        sender.start()
        connection, _ = server.accept()
        with connection:
            while got := connection.recv_into(buffer):
                handle_block(buffer[:got])
        spent = _thread_seconds() - before
        sender.join()
    return spent


def _thread_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_utime + usage.ru_stime


def _send(host: str, port: int, size: int) -> None:
    with socket.create_connection((host, port)) as connection:
        for _ in range(size):
            connection.sendall(BLOCK)
