"""Reads answers over and over on raw connections, doing next to nothing itself: a server is what is measured."""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

BUFFER = 1 << 20


@dataclass(frozen=True)
class Request:
    """What is sent, to whom."""

    port: int
    method: str
    path: str
    headers: dict[str, str]

    @cached_property
    def raw(self) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: bench", "Content-Length: 0"]
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]).encode()


class Connection:
    """One connection, on which one request follows the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._buffer = memoryview(bytearray(BUFFER))

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, raw: bytes) -> tuple[str, dict[str, str], int]:
        """The status, the headers, and how many bytes came as the body."""
        self.send(raw)
        return self.answer()

    def send(self, raw: bytes) -> None:
        self._socket.sendall(raw)

    def answer(self) -> tuple[str, dict[str, str], int]:
        """That to the request which was sent before."""
        begun = b""
        while b"\r\n\r\n" not in begun:
            got = self._socket.recv(64 << 10)
            assert got, "the server broke off"
            begun += got
        head, _, body = begun.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if "chunked" in headers.get("transfer-encoding", ""):
            return status, headers, self._chunked(body)
        return status, headers, self._drained(len(body), int(headers.get("content-length", 0)))

    def _drained(self, had: int, length: int) -> int:
        while had < length:
            got = self._socket.recv_into(self._buffer)
            assert got, "the server broke off"
            had += got
        return length

    def _chunked(self, tail: bytes) -> int:
        had = len(tail)
        while not tail.endswith(b"0\r\n\r\n"):
            got = self._socket.recv_into(self._buffer)
            assert got, "the server broke off"
            had += got
            tail = (tail + bytes(self._buffer[max(0, got - 8) : got]))[-8:]
        return had


def ask_often(request: Request, rounds: int, connections: int) -> None:
    """Ask on all connections at the same time, again and again."""
    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(request.port)) for _ in range(connections)]
        for _ in range(rounds):
            for connection in opened:
                connection.send(request.raw)
            for connection in opened:
                status, _, _ = connection.answer()
                assert status.split()[1] in {"200", "304"}, status
