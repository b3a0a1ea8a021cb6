"""Validates host names and resolves them to addresses."""

import asyncio
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from client_registry.clients.model import NameNotResolved
from common.errors import InvalidField

NAME_LIMIT = 253
TIMEOUT = 2.0  # seconds
AT_ONCE = 4

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")

Lookup = Callable[..., list[tuple[Any, ...]]]


def host_name(field: str, text: str) -> str:
    """A host name by RFC 1123, or a Windows name with underscores. Raises InvalidField."""
    if len(text) > NAME_LIMIT or not _HOST_NAME.fullmatch(text):
        message = f"must be a host name: letters, digits, - and _ in parts of 1 to 63, at most {NAME_LIMIT} in all"
        raise InvalidField(field, message, reason="not_a_host_name", most=NAME_LIMIT)
    return text


class SystemResolver:
    """Resolves names with the system's resolver, in threads of its own: a slow name server delays no other work.

    At most `AT_ONCE` lookups run at once. Each may take `timeout` seconds, including the wait for a thread. Nothing
    connects to the address.
    """

    def __init__(self, lookup: Lookup = socket.getaddrinfo, *, timeout: float = TIMEOUT) -> None:
        self._lookup = lookup
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="resolver")

    async def resolve(self, name: str) -> str:
        """One IP address of a host. Raises NameNotResolved."""
        try:
            async with asyncio.timeout(self._timeout):
                results = await asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: self._lookup(name, None, type=socket.SOCK_STREAM)
                )
        except (OSError, UnicodeError):  # TimeoutError and gaierror are OSErrors.
            raise NameNotResolved(name) from None
        if not results:
            raise NameNotResolved(name)
        address: str = results[0][4][0]
        return address.partition("%")[0]  # without the zone of a link-local address

    def close(self) -> None:
        """Start no more lookups; running ones end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
