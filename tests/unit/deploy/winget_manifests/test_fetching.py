"""Installers are fetched from public addresses only, also after redirects."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import stamina
from aiohttp import web

from catalog_service.model.enumerations import Architecture, FileType
from common.http.outbound import AddressForbidden
from deploy.publish.model import Installer, is_transient
from deploy.terminal import FileProgress
from deploy.winget_manifests.sources import ATTEMPTS, MAX_REDIRECTS, Fetcher, NotFetched, open_fetcher
from tests.support.servers.certificates import make_certificate
from tests.support.servers.http_server import serve
from tests.support.tables import each

CONTENT = b"an installer" * 100
HOST = "download.example.com"  # The DNS of the tests resolves it.

Answer = Callable[[web.BaseRequest], web.StreamResponse]


@dataclass
class InstallerServer:
    """A server of installers. `paths` records the requests; `answers` has special responses by path."""

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
async def installer_server(certificate: Path) -> AsyncIterator[InstallerServer]:
    server = InstallerServer()
    async with serve(server.handle, certificate) as server.port:
        yield server


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of hosts, one response after another; the last one repeats."""
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
    return open_fetcher(allowed, certificate, most)


async def fetched(fetcher: Fetcher, url: str) -> bytes:
    installer = Installer(Path("setup.exe"), "Acme.App", "1", Architecture.X64, FileType.EXE, sha256="ab" * 32, url=url)
    async with fetcher.open(installer, FileProgress()) as file:
        return await file.read(0, file.size)


async def test_an_installer_is_fetched_from_an_allowed_network(
    installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    installer_server.answers["/latest"] = lambda _: leading_to("/files/../setup.exe?of=1")
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        assert await fetched(fetcher, installer_server.url("/latest")) == CONTENT
        assert not [*fetcher.folder.iterdir()]
    assert installer_server.paths == ["/latest", "/setup.exe"]


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
async def test_a_private_address_gets_no_request(url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[object] = []
    monkeypatch.setattr(
        "aiohttp.connector.aiohappyeyeballs.start_connection", lambda *arguments, **_: connections.append(arguments)
    )
    async with fetching(certificate) as fetcher:
        with pytest.raises((AddressForbidden, NotFetched)) as refused:
            await fetched(fetcher, url)
    assert not connections
    assert "secret" not in refused.value.detail


@pytest.mark.parametrize("addresses", ["127.0.0.1", "1.1.1.1 10.0.0.1", "::1", "2606:4700::1111 fd00::1"])
async def test_a_name_with_a_private_address_gets_no_request(
    addresses: str, installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    dns[HOST] = [addresses]
    async with fetching(certificate) as fetcher:
        with pytest.raises(AddressForbidden, match="is no public address"):
            await fetched(fetcher, installer_server.url())
    assert not installer_server.paths


async def test_a_later_dns_response_changes_nothing(
    installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    """The connection uses the checked address; each redirect is resolved and checked again."""
    dns[HOST] = ["127.0.0.1", "169.254.169.254"]
    installer_server.answers["/again"] = lambda _: leading_to(installer_server.url(), Connection="close")
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(AddressForbidden, match="is at 169"):
            await fetched(fetcher, installer_server.url("/again"))
    assert installer_server.paths == ["/again"]


@pytest.mark.parametrize(
    "target",
    ["https://10.0.0.1/a.exe", "http://{host}/a.exe", "https://[::1]/a.exe", "https://a:b@{host}/a.exe"],
)
async def test_a_redirect_to_a_private_address_is_not_followed(
    target: str, installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    location = target.format(host=f"{HOST}:{installer_server.port}")
    installer_server.answers["/setup.exe"] = lambda _: leading_to(location)
    async with fetching(certificate, "127.0.0.1/32") as fetcher:
        with pytest.raises(AddressForbidden):
            await fetched(fetcher, installer_server.url())
    assert installer_server.paths == ["/setup.exe"]


async def test_the_number_of_redirects_is_limited(
    installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    installer_server.answers["/setup.exe"] = lambda _: leading_to("/setup.exe")
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched, match="more than 5 times"):
            await fetched(fetcher, installer_server.url())
    assert len(installer_server.paths) == MAX_REDIRECTS + 1


ANSWERS: dict[str, Answer] = {
    "is larger than 1 MiB": lambda _: web.Response(body=bytes(1 << 20) + b"x"),
    "answers 404": lambda _: web.Response(status=404, body=CONTENT),
    "answers 206": lambda _: web.Response(status=206, body=CONTENT),
    "leads elsewhere": lambda _: web.Response(status=302),
}


@pytest.mark.parametrize("reason", ANSWERS)
async def test_an_invalid_response_is_refused(
    reason: str, installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    installer_server.answers["/setup.exe"] = ANSWERS[reason]
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched, match=reason):
            await fetched(fetcher, installer_server.url())
        assert not [*fetcher.folder.iterdir()]


def responses_in_order(*answers: Answer) -> Answer:
    """Responses in order, repeating the last."""
    remaining = list(answers)

    def answer(request: web.BaseRequest) -> web.StreamResponse:
        return (remaining.pop(0) if len(remaining) > 1 else remaining[0])(request)

    return answer


def busy(status: int, retry_after: str = "0") -> Answer:
    return lambda _: web.Response(status=status, headers={"Retry-After": retry_after})


def broken(request: web.BaseRequest) -> web.StreamResponse:
    """A response whose connection breaks after its start."""
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
async def test_a_transient_failure_is_retried_from_the_start(
    first: Answer, installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    installer_server.answers["/setup.exe"] = responses_in_order(first, first, whole)
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        assert await fetched(fetcher, installer_server.url()) == CONTENT
    assert len(installer_server.paths) == 3


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("answer", "attempts"),
    [(busy(503), ATTEMPTS), (broken, ATTEMPTS), (busy(503, "3600"), 1), (busy(404), 1), (busy(403), 1)],
    ids=["503", "broken", "in an hour", "404", "403"],
)
async def test_a_permanent_failure_is_reported_as_one_of_the_source(
    answer: Answer, attempts: int, installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    installer_server.answers["/setup.exe"] = answer
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched) as given_up:
            await fetched(fetcher, installer_server.url())
    assert len(installer_server.paths) == attempts
    assert not is_transient(given_up.value)


async def test_a_certificate_of_another_host_is_not_trusted(
    installer_server: InstallerServer, certificate: Path, dns: dict[str, list[str]]
) -> None:
    dns["other.example.com"] = ["127.0.0.1"]
    async with fetching(certificate, "127.0.0.0/8") as fetcher:
        with pytest.raises(NotFetched, match="does not give"):
            await fetched(fetcher, installer_server.url(host="other.example.com"))
    assert not installer_server.paths
