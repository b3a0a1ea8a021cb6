"""The session at the server: a login that is renewed when it ends, or a given token."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import FormData
from pydantic import SecretStr

from common.errors import Problem, UpstreamProblem
from common.settings import BadSetting, EnvironmentSettings
from deploy.publish.server import MakeBody, Server

LOGOUT_TIMEOUT = 5.0  # seconds


class Credentials(EnvironmentSettings):
    """Read from the environment, or from files that it names: a command line must not contain secrets."""

    pkgrepo_user: str = ""
    pkgrepo_password: SecretStr = SecretStr("")
    pkgrepo_token: SecretStr = SecretStr("")

    @property
    def can_sign_in(self) -> bool:
        return bool(self.pkgrepo_user and self.pkgrepo_password)

    def check(self) -> None:
        """Raise BadSetting where they are incomplete."""
        if not self.can_sign_in and not self.pkgrepo_token:
            raise BadSetting(
                "set PKGREPO_USER and PKGREPO_PASSWORD, or PKGREPO_PASSWORD_FILE, or PKGREPO_TOKEN to sign in"
            )


class Session:
    """Requests operations as an administrator. It signs in before the first request, and again when a session ends."""

    def __init__(self, server: Server, credentials: Credentials) -> None:
        self._server = server
        self._credentials = credentials
        self.token = credentials.pkgrepo_token.get_secret_value().strip()
        self.has_signed_in = False
        self._sign_in_lock = asyncio.Lock()

    async def request(
        self, method: str, *segments: str, headers: dict[str, str] | None = None, body: MakeBody | None = None
    ) -> Any:
        """The answer to an operation. Raises as `Server.request` and a login do."""

        async def attempt(token: str) -> Any:
            all_headers = {"Authorization": f"Bearer {token}", **(headers or {})}
            return await self._server.request(method, *segments, headers=all_headers, body=body)

        token = self.token or await self._sign_in("")
        try:
            return await attempt(token)
        except UpstreamProblem as refusal:
            # The interface also answers 401 for a package that exists.
            if refusal.code != "not_authenticated" or not self._credentials.can_sign_in:
                raise
        return await attempt(await self._sign_in(token))

    async def _sign_in(self, expired: str) -> str:
        """Replace the expired token, unless another task has done so; the new token."""
        async with self._sign_in_lock:
            if self.token != expired:
                return self.token
            password = self._credentials.pkgrepo_password.get_secret_value()
            form = {"username": self._credentials.pkgrepo_user, "password": password}
            answer = await self._server.request("POST", "login", body=lambda _: FormData(form))
            self.token, self.has_signed_in = str(answer["message"]), True
            return self.token


@asynccontextmanager
async def open_session(server: Server, credentials: Credentials) -> AsyncIterator[Session]:
    """Open a session. After the block, log out if it signed in; if that fails, the session expires."""
    session = Session(server, credentials)
    try:
        yield session
    finally:
        if session.has_signed_in:
            with suppress(Problem, TimeoutError):
                async with asyncio.timeout(LOGOUT_TIMEOUT):
                    await server.request("POST", "logout", body=lambda _: FormData({"token": session.token}))
