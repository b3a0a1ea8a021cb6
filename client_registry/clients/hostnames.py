"""Host names: how one is written, and where it leads."""

import asyncio
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from client_registry.model import NameNotResolved
from common.errors import InvalidField

NAME_LIMIT = 253
TIMEOUT = 2.0  # seconds
AT_ONCE = 4

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")

Lookup = Callable[..., list[tuple[Any, ...]]]


class Resolver(Protocol):
    """Finds the address of a host."""

    async def resolve(self, name: str) -> str:
        """One IP address of a host. Raises NameNotResolved."""


def host_name(field: str, text: str) -> str:
    """A host name as RFC 1123 has it, or one of Windows with underscores.

    Raises:
        InvalidField: it is something else.
    """
    if len(text) > NAME_LIMIT or not _HOST_NAME.fullmatch(text):
        raise InvalidField(
            field,
            f"must be a host name: letters, digits, - and _ in parts of 1 to 63, at most {NAME_LIMIT} in all",
            reason="not_a_host_name",
            most=NAME_LIMIT,
        )
    return text


class SystemResolver:
    """Asks the system's resolver, in threads of its own: a name server that does not answer holds up nobody else.

    At most `AT_ONCE` names are asked for at one time, each for at most `timeout` seconds, the wait for its turn
    included. Nothing connects to what is found.
    """

    def __init__(self, lookup: Lookup = socket.getaddrinfo, *, timeout: float = TIMEOUT) -> None:
        self._lookup = lookup
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="resolver")

    async def resolve(self, name: str) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                found = await asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: self._lookup(name, None, type=socket.SOCK_STREAM)
                )
        except (OSError, UnicodeError):  # TimeoutError and gaierror are OSErrors
            raise NameNotResolved(name) from None
        if not found:
            raise NameNotResolved(name)
        address: str = found[0][4][0]
        return address.partition("%")[0]  # without the zone of a link-local address

    def close(self) -> None:
        """Begin nothing more; a lookup under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
