"""Who we are to the server: a session of ours, renewed where it ends on the way, or a token that was given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import FormData
from pydantic import SecretStr

from common.errors import Problem, UpstreamProblem
from common.settings import BadSetting, EnvironmentSettings
from deploy.publish.server import MakeBody, Server

GOODBYE = 5.0  # seconds that a logout may take


class Credentials(EnvironmentSettings):
    """From the environment, or from the files that it names: secrets stand in no command line."""

    pkgrepo_user: str = ""
    pkgrepo_password: SecretStr = SecretStr("")
    pkgrepo_token: SecretStr = SecretStr("")

    @property
    def can_sign_in(self) -> bool:
        return bool(self.pkgrepo_user and self.pkgrepo_password)

    def check(self) -> None:
        """Raise BadSetting where they are not enough."""
        if not self.can_sign_in and not self.pkgrepo_token:
            raise BadSetting(
                "set PKGREPO_USER and PKGREPO_PASSWORD, or PKGREPO_PASSWORD_FILE, or PKGREPO_TOKEN to sign in"
            )


class Session:
    """Asks as an administrator with `token`, "" before the first question.

    Where there are credentials, a session that is over is followed by a new one.
    """

    def __init__(self, server: Server, credentials: Credentials) -> None:
        self._server = server
        self._credentials = credentials
        self.token = credentials.pkgrepo_token.get_secret_value().strip()
        self._ours = False
        self._renewing = asyncio.Lock()

    async def ask(
        self, method: str, *segments: str, headers: dict[str, str] | None = None, body: MakeBody | None = None
    ) -> Any:
        """The answer to an operation. Raises as `Server.ask` does, and as a login does."""
        if not self.token:
            await self._renew("")
        token = self.token
        try:
            return await self._ask(token, method, segments, headers, body)
        except UpstreamProblem as refusal:
            # A package that exists is answered with 401 as well.
            if refusal.code != "not_authenticated" or not self._credentials.can_sign_in:
                raise
        await self._renew(token)
        return await self._ask(self.token, method, segments, headers, body)

    async def close(self) -> None:
        """Log out of a session that was made here; one that cannot be ended now ends by itself."""
        if self._ours:
            token = self.token
            with suppress(Problem, TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self._server.ask("POST", "logout", body=lambda _: FormData({"token": token}))

    async def _ask(
        self, token: str, method: str, segments: tuple[str, ...], headers: dict[str, str] | None, body: MakeBody | None
    ) -> Any:
        all_headers = {"Authorization": f"Bearer {token}", **(headers or {})}
        return await self._server.ask(method, *segments, headers=all_headers, body=body)

    async def _renew(self, over: str) -> None:
        """Sign in, unless another file's task has done so meanwhile."""
        async with self._renewing:
            if self.token != over:
                return
            form = {
                "username": self._credentials.pkgrepo_user,
                "password": self._credentials.pkgrepo_password.get_secret_value(),
            }
            answer = await self._server.ask("POST", "login", body=lambda _: FormData(form))
            self.token, self._ours = str(answer["message"]), True


@asynccontextmanager
async def open_session(server: Server, credentials: Credentials) -> AsyncIterator[Session]:
    """A session that is made when it is needed, and ended with the block if it was made here."""
    session = Session(server, credentials)
    try:
        yield session
    finally:
        await session.close()
