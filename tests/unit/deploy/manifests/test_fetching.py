"""Installers are fetched from public addresses alone, wherever a manifest or a server on the way points to."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import stamina
from aiohttp import web

from catalog_service.model.enumerations import Architecture, FileType
from deploy.publish.model import Installer
from deploy.publish.problems import is_transient
from deploy.terminal import FileProgress
from deploy.winget_import.fetcher import ATTEMPTS, MAX_REDIRECTS, Fetcher, NotFetched, open_fetcher
from deploy.winget_import.networks import AddressForbidden, Networks
from tests.support.servers.certificates import make_certificate
from tests.support.tables import each

CONTENT = b"an installer" * 100
HOST = "download.example.com"  # whose address the test's DNS gives

Answer = Callable[[web.BaseRequest], web.StreamResponse]


@dataclass
class Maker:
    """A server of installers. `paths` are what it was asked for; `answers` are what it says to some of them."""

    port: int = 0
    paths: list[str] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        answer = self.answers.get(request.path)
        return answer(request) if answer else web.Response(body=CONTENT)

    def url(self, path: str = "/setup.exe", host: str = HOST) -> str:
        return f"https://{host}:{self.port}{path}"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path, HOST, "127.0.0.1")


@pytest.fixture
async def maker(certificate: Path) -> AsyncIterator[Maker]:
    made = Maker()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    runner = web.ServerRunner(web.Server(made.handle))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        made.port = runner.addresses[0][1]
        yield made
    finally:
        await runner.cleanup()


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of hosts, one answer after the other; the last one again and again."""
    answers = {HOST: ["127.0.0.1"]}
    ask = asyncio.get_running_loop().getaddrinfo

    async def answer(host: str, port: int, **options: Any) -> list[Any]:
        if host not in answers:
            return await ask(host, port, **options)
        texts = answers[host].pop(0) if len(answers[host]) > 1 else answers[host][0]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (text, port, 0, 0))
            if ":" in text
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port))
            for text in texts.split()
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)
    return answers


def leading_to(location: str, **headers: str) -> web.Response:
    return web.Response(status=302, headers={"Location": location, **headers})


def fetching(certificate: Path, *allowed: str, most: int = 1 << 20) -> AbstractAsyncContextManager[Fetcher]:
    return open_fetcher(Networks([ip_network(network) for network in allowed]), certificate, most)


async def fetched(fetcher: Fetcher, url: str) -> bytes:
    installer = Installer(Path("setup.exe"), "Acme.App", "1", Architecture.X64, FileType.EXE, sha256="ab" * 32, url=url)
    async with fetcher.open(installer, FileProgress()) as file:
        return await file.read(0, file.size)


async def test_an_installer_comes_whole_from_a_network_that_is_allowed(
    maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    maker.answers["/latest"] = lambda _: leading_to("/files/../setup.exe?of=1")
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        assert await fetched(fetcher, maker.url("/latest")) == CONTENT
        assert not [*fetcher.folder.iterdir()]
    assert maker.paths == ["/latest", "/setup.exe"]


HIDDEN = [
    "https://127.0.0.1/a.exe",
    "https://10.1.2.3/a.exe",
    "https://172.16.0.1/a.exe",
    "https://192.168.1.1/a.exe",
    "https://100.64.0.1/a.exe",
    "https://169.254.169.254/latest/meta-data",
    "https://0.0.0.0/a.exe",
    "https://224.0.0.1/a.exe",
    "https://[::1]/a.exe",
    "https://[::]/a.exe",
    "https://[::ffff:127.0.0.1]/a.exe",
    "https://[::ffff:a9fe:a9fe]/a.exe",
    "https://[64:ff9b::7f00:1]/a.exe",
    "https://[2002:7f00:1::]/a.exe",
    "https://[fe80::1]/a.exe",
    "https://[fec0::1]/a.exe",
    "https://[fd00:ec2::254]/a.exe",
    "https://localhost/a.exe",
    "https://2130706433/a.exe",
    "https://0x7f000001/a.exe",
    "https://0177.0.0.1/a.exe",
    "https://127.1/a.exe",
    "https://0/a.exe",
    "https://127.0.0.1./a.exe",
    "http://1.1.1.1/a.exe",
    "ftp://1.1.1.1/a.exe",
    "file:///etc/passwd",
    "https:///a.exe",
    "https://user:secret@1.1.1.1/a.exe",
    "https://user@1.1.1.1/a.exe",
    "https://1.1.1.1:99999/a.exe",
]


@each("url", HIDDEN)
async def test_an_address_that_is_not_public_is_not_asked(
    url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", lambda *given, **_: asked.append(given))
    async with fetching(certificate) as fetcher:
        with pytest.raises((AddressForbidden, NotFetched)) as refused:
            await fetched(fetcher, url)
    assert not asked
    assert "secret" not in refused.value.detail


@pytest.mark.parametrize("addresses", ["127.0.0.1", "1.1.1.1 10.0.0.1", "::1", "2606:4700::1111 fd00::1"])
async def test_a_name_with_one_address_that_is_not_public_is_not_asked(
    addresses: str, maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    dns[HOST] = [addresses]
    async with fetching(certificate) as fetcher:
        with pytest.raises(AddressForbidden, match="is no public address"):
            await fetched(fetcher, maker.url())
    assert not maker.paths


async def test_what_the_dns_says_later_changes_nothing(
    maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    """The address that was checked is the one that is connected to; each redirect is resolved and checked anew."""
    dns[HOST] = ["127.0.0.1", "169.254.169.254"]
    maker.answers["/again"] = lambda _: leading_to(maker.url(), Connection="close")
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(AddressForbidden, match="is at 169"):
            await fetched(fetcher, maker.url("/again"))
    assert maker.paths == ["/again"]


@pytest.mark.parametrize(
    "there",
    ["https://10.0.0.1/a.exe", "http://{host}/a.exe", "https://[::1]/a.exe", "https://a:b@{host}/a.exe"],
)
async def test_a_redirect_to_what_is_not_public_is_not_followed(
    there: str, maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    location = there.format(host=f"{HOST}:{maker.port}")
    maker.answers["/setup.exe"] = lambda _: leading_to(location)
    async with fetching(certificate, "127.0.0.1/32") as fetcher:
        with pytest.raises(AddressForbidden):
            await fetched(fetcher, maker.url())
    assert maker.paths == ["/setup.exe"]


async def test_redirects_end(maker: Maker, certificate: Path, dns: dict[str, list[str]]) -> None:
    maker.answers["/setup.exe"] = lambda _: leading_to("/setup.exe")
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched, match="more than 5 times"):
            await fetched(fetcher, maker.url())
    assert len(maker.paths) == MAX_REDIRECTS + 1


ANSWERS: dict[str, Answer] = {
    "is larger than 1 MiB": lambda _: web.Response(body=bytes(1 << 20) + b"x"),
    "answers 404": lambda _: web.Response(status=404, body=CONTENT),
    "answers 206": lambda _: web.Response(status=206, body=CONTENT),
    "leads elsewhere": lambda _: web.Response(status=302),
}


@pytest.mark.parametrize("reason", ANSWERS)
async def test_an_answer_that_is_no_installer_is_refused(
    reason: str, maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    maker.answers["/setup.exe"] = ANSWERS[reason]
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched, match=reason):
            await fetched(fetcher, maker.url())
        assert not [*fetcher.folder.iterdir()]


def in_turn(*answers: Answer) -> Answer:
    """Answers one after the other, the last one again and again."""
    left = list(answers)

    def answer(request: web.BaseRequest) -> web.StreamResponse:
        return (left.pop(0) if len(left) > 1 else left[0])(request)

    return answer


def busy(status: int, retry_after: str = "0") -> Answer:
    return lambda _: web.Response(status=status, headers={"Retry-After": retry_after})


def broken(request: web.BaseRequest) -> web.StreamResponse:
    """An answer that begins, and whose line breaks then."""
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nbytes of before")
    request.transport.close()
    return web.Response()


def whole(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=CONTENT)


@pytest.fixture
def no_pauses() -> Iterator[None]:
    with stamina.set_testing(True, attempts=ATTEMPTS):
        yield


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("first", [busy(429), busy(500), busy(503), broken], ids=["429", "500", "503", "broken"])
async def test_what_may_pass_is_tried_again_from_the_beginning(
    first: Answer, maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    maker.answers["/setup.exe"] = in_turn(first, first, whole)
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        assert await fetched(fetcher, maker.url()) == CONTENT
    assert len(maker.paths) == 3


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("answer", "attempts"),
    [(busy(503), ATTEMPTS), (broken, ATTEMPTS), (busy(503, "3600"), 1), (busy(404), 1), (busy(403), 1)],
    ids=["503", "broken", "in an hour", "404", "403"],
)
async def test_what_does_not_pass_is_given_up_and_is_no_fault_of_our_server(
    answer: Answer, attempts: int, maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    maker.answers["/setup.exe"] = answer
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched) as given_up:
            await fetched(fetcher, maker.url())
    assert len(maker.paths) == attempts
    assert not is_transient(given_up.value)


async def test_a_certificate_of_another_is_not_trusted(
    maker: Maker, certificate: Path, dns: dict[str, list[str]]
) -> None:
    dns["other.example.com"] = ["127.0.0.1"]
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched, match="does not give"):
            await fetched(fetcher, maker.url(host="other.example.com"))
    assert not maker.paths
