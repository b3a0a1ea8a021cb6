"""Retries and errors of `pkgrepo publish` for each kind of response."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import stamina
from aiohttp import web

from catalog_service.model.enumerations import Architecture, FileType
from common.errors import UpstreamProblem
from deploy.publish import client as client_module
from deploy.publish.client import Credentials, HttpClient, RetryingClient, open_http_client
from deploy.publish.model import Installer, NotTheInterface, Published, Unreachable, Untrusted
from tests.support.servers.certificates import make_certificate
from tests.support.servers.http_server import serve
from tests.support.tables import each

ATTEMPTS = 4
CREDENTIALS = Credentials(pkgrepo_token="a token")  # type: ignore[arg-type]  # pydantic makes it secret
Answer = Callable[[], web.Response]


@pytest.fixture(autouse=True)
def no_pauses() -> Iterator[None]:
    with stamina.set_testing(True, attempts=ATTEMPTS):
        yield


class ScriptedServer:
    """A server that sends these responses in order and repeats the last; None closes the connection."""

    def __init__(self, *answers: Answer | None) -> None:
        self._answers = answers
        self.call_count = 0

    @asynccontextmanager
    async def client(self, certificate: Path | None = None, *, trusted: bool = True) -> AsyncIterator[HttpClient]:
        """A client of the server, which has a certificate if it is given."""
        async with serve(self._handle, certificate) as port:
            base = f"http{'s' if certificate else ''}://127.0.0.1:{port}/acme"
            async with open_http_client(base, certificate if trusted else None, CREDENTIALS) as client:
                yield client

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        answer = self._answers[min(self.call_count, len(self._answers) - 1)]
        self.call_count += 1
        if answer is None:
            assert request.transport
            request.transport.abort()
            return fine()
        return answer()


def fine() -> web.Response:
    return web.json_response([])


def problem(status: int, code: str, retry_after: str = "") -> Answer:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return lambda: web.json_response({"detail": "Said.", "code": code}, status=status, headers=headers)


def page(status: int, **headers: str) -> Answer:
    return lambda: web.Response(status=status, text="<html>", content_type="text/html", headers=headers)


async def ask(scripted: ScriptedServer, timeout: float = 60) -> object:
    async with scripted.client() as client:
        return await RetryingClient(client, timeout).versions("Acme.App")


@each(
    "passing",
    [problem(500, "dependency_unavailable", "5"), problem(429, "too_many_requests", "1"), page(502), page(503)],
)
async def test_transient_failures_are_retried(passing: Answer) -> None:
    scripted = ScriptedServer(passing, passing, fine)
    assert await ask(scripted) == []
    assert scripted.call_count == 3


@each(
    ("refusal", "code"),
    [
        (problem(400, "invalid_field"), "invalid_field"),
        (problem(403, "forbidden"), "forbidden"),
        (problem(404, "tenant_not_found"), "tenant_not_found"),
        (problem(409, "version_exists"), "version_exists"),
        (problem(500, "transfer_damaged"), "transfer_damaged"),
        (problem(429, "too_many_requests", "3600"), "too_many_requests"),
        (page(403), "refused"),
    ],
)
async def test_permanent_refusals_are_not_retried(refusal: Answer, code: str) -> None:
    scripted = ScriptedServer(refusal, fine)
    with pytest.raises(UpstreamProblem) as raised:
        await ask(scripted)
    assert (raised.value.code, scripted.call_count) == (code, 1)


@each("response", [page(200), page(301, Location="https://packages.example.com/acme/")])
async def test_another_server_at_the_address_is_reported(response: Answer) -> None:
    with pytest.raises(NotTheInterface):
        await ask(ScriptedServer(response))


async def test_an_unreachable_server_is_retried() -> None:
    scripted = ScriptedServer(None, None, fine)
    assert await ask(scripted) == []
    assert scripted.call_count == 3


async def test_retries_end_if_the_server_stays_unreachable() -> None:
    scripted = ScriptedServer(None)
    with pytest.raises(Unreachable):
        await ask(scripted)
    assert scripted.call_count >= ATTEMPTS


async def test_a_server_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "STALL_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        base = f"http://127.0.0.1:{silent.getsockname()[1]}/acme"
        async with open_http_client(base, None, CREDENTIALS) as client:
            with pytest.raises(Unreachable, match="does not answer"):
                await client.request("GET", "server_information")


async def test_an_unknown_certificate_is_refused_unless_its_file_is_given(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.1")
    async with ScriptedServer(fine).client(certificate, trusted=False) as client:
        with pytest.raises(Untrusted):
            await client.request("GET", "get_package_versions", "Acme.App")
    async with ScriptedServer(fine).client(certificate) as client:
        assert await client.request("GET", "get_package_versions", "Acme.App") == []


@each(
    "refusal, warning",
    [
        ({"field": "package_version", "reason": "must not hold /"}, "package_version must not hold /."),
        ({"field": "", "reason": "Version 1 has this installer."}, "Version 1 has this installer."),
    ],
)
async def test_a_refusal_of_winget_is_one_sentence(refusal: dict[str, str], warning: str) -> None:
    details = {"file_type": "MSI", "winget_refusals": [refusal]}
    installer = Installer(Path("a.msi"), "Acme.App", "1", Architecture.X64, FileType.MSI)
    async with ScriptedServer(lambda: web.json_response(details)).client() as client:
        result = await RetryingClient(client, 1).with_warnings(Published(installer, "", "", 1, 0, created=True))
    assert result.warnings == [f"winget does not show this version: {warning}"]
