"""The services that `pkgrepo status` asks."""

from io import StringIO
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from deploy.local.folder import Addresses, DataFolder
from deploy.operator.status import PORTS, print_status

ABSENT = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder. The environment names no service."""
    for name in PORTS:
        monkeypatch.delenv(f"{name.upper()}_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record_running_up(path: Path) -> str:
    """Leave the address file of a running `pkgrepo up`, and return its address."""
    folder = DataFolder(path)
    folder.prepare()
    folder.save_addresses(Addresses(ABSENT, "mongodb://127.0.0.1:9", "redis://127.0.0.1:9"))
    return ABSENT


async def status_text(data: Path | None = None) -> str:
    output = StringIO()
    await print_status(Console(width=300, file=output), data)
    return output.getvalue()


async def test_status_finds_a_running_up_on_the_default_folder(current_folder: Path) -> None:
    address = record_running_up(current_folder / "data")
    text = await status_text()
    assert address in text
    assert str(current_folder / "data" / "run" / "auth_service.sock") in text
    assert "--data" not in text


async def test_status_prefers_the_addresses_in_the_environment(
    current_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_running_up(current_folder / "data")
    monkeypatch.setenv("CATALOG_SERVICE_URL", "http://127.0.0.1:10")
    text = await status_text()
    assert "http://127.0.0.1:10" in text
    assert ".sock" not in text


async def test_status_names_the_option_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.operator.status.PORTS", dict.fromkeys(PORTS, 9))
    assert "Give --data DIR of a running `pkgrepo up`" in await status_text()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("<h1>It works</h1>", "another program answers"),
        ('{"ok": 1}', "another program answers"),
        ('{"status": "stopping"}', "service: stopping"),
    ],
    ids=["page", "json", "stopping"],
)
async def test_only_a_service_that_says_so_is_ready(answer: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text=answer)

    app = web.Application()
    app.router.add_get("/readyz", readyz)
    async with TestServer(app) as server:
        for name in PORTS:
            monkeypatch.setenv(f"{name.upper()}_URL", str(server.make_url("/")).rstrip("/"))
        text = await status_text()
    assert (text.count(shown), text.count("not ready")) == (len(PORTS), len(PORTS))
