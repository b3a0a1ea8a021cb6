"""Host names: validation and resolution."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from client_registry.clients.service import AT_ONCE, SystemResolver, host_name
from client_registry.clients.store import NameNotResolved
from common.errors import InvalidField
from tests.support.tables import each

Found = list[tuple[Any, ...]]


@pytest.fixture
def resolver() -> Iterator[SystemResolver]:
    resolver = SystemResolver()
    yield resolver
    resolver.close()


def address_infos(*addresses: str) -> Found:
    """The result of `getaddrinfo`."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]


@each(
    "text", ["pc", "PC-0042", "pc_1", "_pc", "pc.corp.example.com", "3com.example", "a" * 63, ".".join(["a" * 49] * 5)]
)
def test_a_valid_host_name_is_accepted(text: str) -> None:
    assert host_name("client_name", text) == text


@each(
    "text",
    [
        "",
        "pc 1",
        "-pc",
        "pc-",
        "pc.",
        ".pc",
        "pc..example",
        "a" * 64,
        ".".join(["a" * 50] * 5) + ".com",
        "pc/1",
        "pc\n",
        "pç",
        "https://pc",
        "pc:80",
        "::1",
        "<b>pc</b>",
    ],
)
def test_an_invalid_host_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^client_name: "):
        host_name("client_name", text)


async def test_resolved_addresses_are_not_connected_to(
    resolver: SystemResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[object] = []
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, lambda *arguments: connected.append(arguments))

    assert await resolver.resolve("localhost") in {"127.0.0.1", "::1"}
    assert connected == []


async def test_the_first_address_is_returned_without_its_zone() -> None:
    found = address_infos("fe80::1%eth0", "192.0.2.1")
    resolver = SystemResolver(lambda *_, **__: found)
    assert await resolver.resolve("pc") == "fe80::1"
    found.clear()
    with pytest.raises(NameNotResolved):
        await resolver.resolve("pc")
    resolver.close()


async def test_an_unknown_name_is_not_resolved(resolver: SystemResolver) -> None:
    with pytest.raises(NameNotResolved, match=r"nowhere\.invalid"):
        await resolver.resolve("nowhere.invalid")


async def test_a_name_server_that_does_not_answer_times_out() -> None:
    answer = threading.Event()
    resolver = SystemResolver(lambda *_, **__: address_infos("192.0.2.1") if answer.wait(30) else [], timeout=0.01)

    with pytest.raises(NameNotResolved):
        await resolver.resolve("pc")

    answer.set()
    resolver.close()


async def test_few_names_are_resolved_at_once() -> None:
    lookups: list[str] = []
    answer, full = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def lookup(name: str, *_: object, **__: object) -> Found:
        lookups.append(name)
        if len(lookups) == AT_ONCE:
            loop.call_soon_threadsafe(full.set)
        answer.wait(30)
        return address_infos("192.0.2.1")

    resolver = SystemResolver(lookup)
    waiting = [asyncio.create_task(resolver.resolve(f"pc-{number}")) for number in range(3 * AT_ONCE)]
    await full.wait()
    asked_at_once = list(lookups)
    answer.set()

    assert await asyncio.gather(*waiting) == ["192.0.2.1"] * (3 * AT_ONCE)
    assert len(asked_at_once) == AT_ONCE
    resolver.close()
