"""The version of the program, and which callers see it."""

from collections.abc import AsyncIterator
from importlib.metadata import version

import pytest
from aiohttp import ClientSession, web

from common.http.server import management_of, serving, watched_app
from common.telemetry import software_version
from tests.support.tables import each


@pytest.fixture(autouse=True)
def _read_again() -> None:
    software_version.cache_clear()


@each(("commit", "text"), [("", version("pkgrepo")), ("4f2a91c07d3b", f"{version('pkgrepo')}+4f2a91c07d3b")])
def test_the_version_names_the_commit_of_the_image(commit: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKGREPO_COMMIT", commit)
    software_version.cache_clear()
    assert software_version() == text


async def test_only_the_management_address_says_the_version_in_livez() -> None:
    app = watched_app("auth_service", nothing, access_log=False)
    async with (
        serving(app, "127.0.0.1:0") as public,
        serving(management_of(app), "127.0.0.1:0") as management,
        ClientSession() as session,
    ):
        answers = []
        for address in (public, management):
            async with session.get(f"{address}/livez") as answer:
                answers.append(await answer.json())
    assert answers == [{"status": "alive"}, {"status": "alive", "version": software_version()}]


async def nothing(_: web.Application) -> AsyncIterator[None]:
    yield
