"""The sessions of `pkgrepo publish`, and text from outside, which its terminal does not obey."""

import asyncio
import json
from collections.abc import AsyncIterator
from io import StringIO

import pytest
from aiohttp import web
from pydantic import SecretStr
from rich.console import Console

from common.errors import UpstreamProblem
from deploy.publish.client import Credentials, HttpClient, open_http_client
from deploy.terminal import folding_table, json_text, print_line, show_progress, visible
from tests.support.servers.http_server import serve
from tests.support.tables import each


class SessionServer:
    """A server with open sessions that responds with the token of the request."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/acme/login":
            self.opened.append(f"session-{len(self.opened)}")
            return web.json_response({"message": self.opened[-1]})
        if request.path == "/acme/logout":
            self.closed.append((await request.post())["token"])  # type: ignore[arg-type]  # no file is sent
            return web.json_response({"message": "Logout Successful!"})
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if token not in self.opened or token in self.closed:
            return web.json_response({"detail": "It is over.", "code": "not_authenticated"}, status=401)
        return web.json_response({"token": token})


@pytest.fixture
def session_server() -> SessionServer:
    return SessionServer()


@pytest.fixture
async def url(session_server: SessionServer) -> AsyncIterator[str]:
    async with serve(session_server.handle) as port:
        yield f"http://127.0.0.1:{port}/acme/"


def credentials(token: str = "", *, signs_in: bool = True) -> Credentials:
    user, password = ("admin", "a password") if signs_in else ("", "")
    return Credentials(pkgrepo_user=user, pkgrepo_password=SecretStr(password), pkgrepo_token=SecretStr(token))


async def ask_at_once(client: HttpClient, times: int) -> set[str]:
    """The tokens of concurrent requests."""
    answers = await asyncio.gather(*(client.request("GET", "test") for _ in range(times)))
    return {answer["token"] for answer in answers}


async def test_concurrent_requests_share_one_session_and_its_renewal(session_server: SessionServer, url: str) -> None:
    async with open_http_client(url, None, credentials()) as client:
        assert await ask_at_once(client, 5) == {"session-0"}
        session_server.closed.append("session-0")
        assert await ask_at_once(client, 5) == {"session-1"}
    assert session_server.opened == ["session-0", "session-1"]
    assert session_server.closed == ["session-0", "session-1"]


async def test_an_expired_token_is_not_replaced_by_a_session(session_server: SessionServer, url: str) -> None:
    async with open_http_client(url, None, credentials("over", signs_in=False)) as client:
        with pytest.raises(UpstreamProblem, match="It is over"):
            await client.request("GET", "test")
    assert session_server.opened == session_server.closed == []


async def test_a_token_of_the_caller_is_not_logged_out(session_server: SessionServer, url: str) -> None:
    session_server.opened.append("given")
    async with open_http_client(url, None, credentials("given\n", signs_in=False)) as client:
        assert await ask_at_once(client, 2) == {"given"}
    assert session_server.closed == []


HOSTILE = ["\x1b]0;owned\x07", "\x9b31m", "a\rb", "a\nb", "a\x08b", "a\x7fb", "\u202e\u200bgnp", "a\u2028b", "\udcffb"]


@each("text", HOSTILE)
def test_control_and_hidden_characters_are_escaped(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(text).encode().decode("unicode_escape") == text


@each("text", ["Größer", "日本語 🙂", "10\u00a0MB", "日本\u3000語", "a\\b", "[red]:x:[/red]"])
def test_printable_text_is_unchanged(text: str) -> None:
    output = StringIO()
    print_line(Console(file=output, force_terminal=True, soft_wrap=True), text)
    assert output.getvalue().strip() == text


@each("terminal", [True, False])
@each("text", [*HOSTILE, "[red]:x:[/red]"])
def test_a_file_name_in_the_progress_is_escaped(text: str, terminal: bool) -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=terminal, soft_wrap=True, width=200)
    with show_progress(console) as rows, rows(text) as row:
        row.start("sending", 10)
    assert visible(text) in output.getvalue()
    assert text.isprintable() or text not in output.getvalue()


@each("text", HOSTILE)
def test_json_is_printable_and_keeps_the_texts(text: str) -> None:
    text_of_json = json_text({"file": text})
    assert all(line.isascii() and line.isprintable() for line in text_of_json.split("\n"))
    assert json.loads(text_of_json) == {"file": text}


def test_a_table_cuts_no_cell() -> None:
    output = StringIO()
    table = folding_table("First", "Next")
    table.add_row("a" * 30, "b" * 50)
    Console(file=output, width=40).print(table)
    assert (output.getvalue().count("a"), output.getvalue().count("b")) == (30, 50)
