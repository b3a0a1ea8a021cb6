"""The host names and addresses of this machine."""

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address

_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?!.{{254}}){_LABEL}(\.{_LABEL})*", re.IGNORECASE)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Addresses for documentation. Connecting a UDP socket sends nothing; it selects our address for this destination.
_ROUTES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def is_host(text: str) -> bool:
    """Whether the text is an address or a host name in ASCII, without scheme and port."""
    return _is_address(text) or _HOST_NAME.fullmatch(text) is not None


def server_names(host: str, names: Sequence[str]) -> list[str]:
    """The names by which other machines can reach a server that listens at `host`, and those of loopback.

    The first one is the best for addresses in messages: one of `names`, else an address, else the machine's name.
    """
    addresses = local_addresses() if is_wildcard(host) else [host]
    own = [name for name in (socket.gethostname(), socket.getfqdn()) if is_host(name)]
    return list(dict.fromkeys(name.lower() for name in (*names, *addresses, *own, *LOOPBACK)))


def is_wildcard(host: str) -> bool:
    return _is_address(host) and ip_address(host).is_unspecified


def local_addresses() -> Iterator[str]:
    """The addresses from which this machine reaches other machines."""
    for family, destination in _ROUTES:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as connection:  # There may be no such route.
            connection.connect((destination, 9))
            yield connection.getsockname()[0]


def authority(host: str, port: int) -> str:
    """A host and a port as in an address, with the brackets of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(text: str) -> bool:
    try:
        return ip_address(text) is not None
    except ValueError:
        return False
