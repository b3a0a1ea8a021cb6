"""The sessions of `pkgrepo publish`."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from pydantic import SecretStr

from common.errors import UpstreamProblem
from deploy.publish.client import Credentials, HttpClient, open_http_client


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
    runner = web.ServerRunner(web.Server(session_server.handle))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/acme/"
    finally:
        await runner.cleanup()


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
