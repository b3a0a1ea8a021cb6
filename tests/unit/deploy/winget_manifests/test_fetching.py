"""Installers are fetched from public addresses only, also after redirects."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import stamina
from aiohttp import web

from catalog_service.model.enumerations import Architecture, FileType
from common.http.outbound import AddressForbidden
from deploy.publish.model import Installer, is_transient
from deploy.terminal import FileProgress
from deploy.winget_manifests.sources import ATTEMPTS, MAX_REDIRECTS, NotFetched, open_fetcher
from tests.support.servers.certificates import make_certificate
from tests.support.servers.http_server import serve
from tests.support.tables import each

CONTENT = b"an installer" * 100
HOST = "download.example.com"  # The DNS of the tests resolves it.

Answer = Callable[[web.BaseRequest], web.StreamResponse]


@dataclass
class Source:
    """A server of installers, and its client. Addresses of the server's network are allowed if `allowed` has it.

    `paths` records the requests; `answers` has special responses by path. `dns` has the addresses of hosts, one
    response after another; the last one repeats.
    """

    certificate: Path
    port: int = 0
    paths: list[str] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    dns: dict[str, list[str]] = field(default_factory=lambda: {HOST: ["127.0.0.1"]})
    allowed: tuple[str, ...] = ("127.0.0.0/8",)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        answer = self.answers.get(request.path)
        return answer(request) if answer else web.Response(body=CONTENT)

    def url(self, path: str = "/setup.exe", host: str = HOST) -> str:
        return f"https://{host}:{self.port}{path}"

    async def fetch(self, url: str = "") -> bytes:
        """The content of an installer. No file of it stays."""
        setup = Installer(Path("setup.exe"), "Acme.App", "1", Architecture.X64, FileType.EXE)
        installer = replace(setup, sha256="ab" * 32, url=url or self.url())
        async with open_fetcher(self.allowed, self.certificate, 1 << 20) as fetcher:
            try:
                async with fetcher.open(installer, FileProgress()) as file:
                    return await file.read(0, file.size)
            finally:
                assert not [*fetcher.folder.iterdir()]


@pytest.fixture
async def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Source]:
    source = Source(make_certificate(tmp_path, HOST, "127.0.0.1"))
    ask = asyncio.get_running_loop().getaddrinfo

    async def answer(host: str, port: int, **options: Any) -> list[Any]:
        if host not in source.dns:
            return await ask(host, port, **options)
        texts = source.dns[host].pop(0) if len(source.dns[host]) > 1 else source.dns[host][0]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (text, port, 0, 0))
            if ":" in text
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port))
            for text in texts.split()
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)
    async with serve(source.handle, source.certificate) as source.port:
        yield source


def leading_to(location: str, **headers: str) -> web.Response:
    return web.Response(status=302, headers={"Location": location, **headers})


async def test_an_installer_is_fetched_from_an_allowed_network(source: Source) -> None:
    source.answers["/latest"] = lambda _: leading_to("/files/../setup.exe?of=1")
    assert await source.fetch(source.url("/latest")) == CONTENT
    assert source.paths == ["/latest", "/setup.exe"]


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
async def test_a_private_address_gets_no_request(url: str, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.allowed = ()
    connections: list[object] = []
    monkeypatch.setattr(
        "aiohttp.connector.aiohappyeyeballs.start_connection", lambda *arguments, **_: connections.append(arguments)
    )
    with pytest.raises((AddressForbidden, NotFetched)) as refused:
        await source.fetch(url)
    assert not connections
    assert "secret" not in refused.value.detail


@each("addresses", ["127.0.0.1", "1.1.1.1 10.0.0.1", "::1", "2606:4700::1111 fd00::1"])
async def test_a_name_with_a_private_address_gets_no_request(addresses: str, source: Source) -> None:
    source.allowed, source.dns[HOST] = (), [addresses]
    with pytest.raises(AddressForbidden, match="is no public address"):
        await source.fetch()
    assert not source.paths


async def test_a_later_dns_response_changes_nothing(source: Source) -> None:
    """The connection uses the checked address; each redirect is resolved and checked again."""
    source.dns[HOST] = ["127.0.0.1", "169.254.169.254"]
    source.answers["/again"] = lambda _: leading_to(source.url(), Connection="close")
    with pytest.raises(AddressForbidden, match="is at 169"):
        await source.fetch(source.url("/again"))
    assert source.paths == ["/again"]


@pytest.mark.parametrize(
    "target",
    ["https://10.0.0.1/a.exe", "http://{host}/a.exe", "https://[::1]/a.exe", "https://a:b@{host}/a.exe"],
)
async def test_a_redirect_to_a_private_address_is_not_followed(target: str, source: Source) -> None:
    source.answers["/setup.exe"] = lambda _: leading_to(target.format(host=f"{HOST}:{source.port}"))
    with pytest.raises(AddressForbidden):
        await source.fetch()
    assert source.paths == ["/setup.exe"]


async def test_the_number_of_redirects_is_limited(source: Source) -> None:
    source.answers["/setup.exe"] = lambda _: leading_to("/setup.exe")
    with pytest.raises(NotFetched, match="more than 5 times"):
        await source.fetch()
    assert len(source.paths) == MAX_REDIRECTS + 1


@each(
    ("reason", "answer"),
    [
        ("is larger than 1 MiB", lambda _: web.Response(body=bytes(1 << 20) + b"x")),
        ("answers 404", lambda _: web.Response(status=404, body=CONTENT)),
        ("answers 206", lambda _: web.Response(status=206, body=CONTENT)),
        ("leads elsewhere", lambda _: web.Response(status=302)),
    ],
)
async def test_an_invalid_response_is_refused(reason: str, answer: Answer, source: Source) -> None:
    source.answers["/setup.exe"] = answer
    with pytest.raises(NotFetched, match=reason):
        await source.fetch()


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
async def test_a_transient_failure_is_retried_from_the_start(first: Answer, source: Source) -> None:
    source.answers["/setup.exe"] = responses_in_order(first, first, whole)
    assert await source.fetch() == CONTENT
    assert len(source.paths) == 3


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("answer", "attempts"),
    [(busy(503), ATTEMPTS), (broken, ATTEMPTS), (busy(503, "3600"), 1), (busy(404), 1), (busy(403), 1)],
    ids=["503", "broken", "in an hour", "404", "403"],
)
async def test_a_permanent_failure_is_reported_as_one_of_the_source(
    answer: Answer, attempts: int, source: Source
) -> None:
    source.answers["/setup.exe"] = answer
    with pytest.raises(NotFetched) as given_up:
        await source.fetch()
    assert len(source.paths) == attempts
    assert not is_transient(given_up.value)


async def test_a_certificate_of_another_host_is_not_trusted(source: Source) -> None:
    source.dns["other.example.com"] = ["127.0.0.1"]
    with pytest.raises(NotFetched, match="does not give"):
        await source.fetch(source.url(host="other.example.com"))
    assert not source.paths
