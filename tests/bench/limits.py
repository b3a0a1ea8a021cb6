"""What this machine needs for the parts of a transfer that nobody can leave out: the measure of every figure here."""

import hashlib
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread

MIB = 1 << 20
MEASURED = 256  # MiB
BLOCK = os.urandom(MIB)


def limits(folder: Path) -> dict[str, float]:
    """CPU seconds per GiB of each, measured now; the writing is done in `folder`."""
    return {
        "SHA-256": _cost(_hash),
        "page cache + fsync": _cost(lambda: _write(folder / "limit")),
        "loopback, both ends": _cost(_loop_back),
    }


def _cost(work: Callable[[], None]) -> float:
    before = _spent()
    work()
    return (_spent() - before) * 1024 / MEASURED


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _hash() -> None:
    digest = hashlib.sha256()
    for _ in range(MEASURED):
        digest.update(BLOCK)


def _write(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(MEASURED):
            file.write(BLOCK)
        os.fsync(file.fileno())
    path.unlink()


def _loop_back() -> None:
    buffer = bytearray(MIB)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = Thread(target=_send, args=server.getsockname())
        sender.start()
        connection, _ = server.accept()
        with connection:
            while connection.recv_into(buffer):
                pass
        sender.join()


def _send(host: str, port: int) -> None:
    with socket.create_connection((host, port)) as connection:
        for _ in range(MEASURED):
            connection.sendall(BLOCK)
