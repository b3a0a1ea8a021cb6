"""The table of attacks says what came of them, and a run in which something broke has failed."""

import os
import subprocess
import sys

import pytest

from tests.system.forked import ROOT

# What stands in for the product: it opens its own sessions, which are nobody's attack.
PRODUCT = """
import asyncio
from contextlib import asynccontextmanager

from aiohttp import ClientSession, web

from common.server import serving


async def answer(request):
    if request.path == "/relay":
        async with ClientSession() as session, session.get(f"http://{request.host}/418") as response:
            return web.Response(status=200 if response.status == 418 else 500)
    if request.path == "/large":
        bytearray(b"x" * (64 << 20))
    if request.path == "/418":
        return web.Response(status=418, text="HTTP/1.1 500 It says. HTTP/1.1 200 OK\\r\\n")
    if request.path == "/nothing":
        request.transport.close()
    return web.Response(status=int(request.path[1:]) if request.path[1:].isdigit() else 200)


@asynccontextmanager
async def product():
    app = web.Application()
    app.router.add_route("*", "/{path}", answer)
    async with serving(app, "127.0.0.1:0") as address:
        yield address
"""
TESTS = """
import asyncio

import pytest
from aiohttp import ClientError, ClientSession
from yarl import URL

from product import product


async def get(*paths):
    async with product() as address, ClientSession() as session:
        for path in paths:
            async with session.get(f"{address}/{path}"):
                pass


@pytest.mark.attack("S10")
async def test_refused(cell):
    await get("404", "407", "200", "relay")
    cell("Callers", "GET /404", "stranger", 404)
    cell("Callers", "GET /404", "stranger", 401)
    cell("Callers", "GET /200", "friend", 200)


@pytest.mark.attack("S9")
async def test_raw():
    async with product() as address:
        url = URL(address)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for path, end in {"200": "", "418": "", "404": "", "400": "Connection: close\\r\\n"}.items():
            writer.write(f"GET /{path} HTTP/1.1\\r\\nHost: x\\r\\n{end}\\r\\n".encode())
        await reader.read()
        writer.close()
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET /nothing HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        await reader.read()
        writer.close()


@pytest.mark.attack("S11")
async def test_nothing():
    with pytest.raises(ClientError):
        await get("nothing")


@pytest.mark.attack("S4")
async def test_large():
    await get("large")


@pytest.mark.attack("L6", expected=[503])
async def test_a_crowd():
    await get("200", "503")


@pytest.mark.attack("S29")
async def test_that_breaks_something_unseen():
    await get("404", "500")


@pytest.mark.attack("S27")
def test_without_requests():
    pass


async def test_that_is_no_attack():
    await get("500")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, list[str]], str]:
    """What pytest said of those tests; the cells of the table by the first one; and the whole page."""
    folder = tmp_path_factory.mktemp("attacks")
    (folder / "product.py").write_text(PRODUCT, encoding="utf-8")
    (folder / "test_product.py").write_text(TESTS, encoding="utf-8")
    page = folder / "ATTACKS.md"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.attacks",
        "-p",
        "no:cacheprovider",
        "--attack-table",
        str(page),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "-o", "asyncio_mode=auto", str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    text = page.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return done.stdout, {row[0].partition(" ")[0]: row[1:] for row in rows}, text


Run = tuple[str, dict[str, list[str]], str]


def test_what_came_of_an_attack_is_counted(run: Run) -> None:
    _, rows, _ = run
    tests_and_counts = {name: row[:6] for name, row in rows.items() if name[0] in "SL" and row[0] != "0"}
    assert tests_and_counts == {
        # tests, requests, refused, let through, closed unanswered, server errors
        "S4": ["1", "1", "0", "1", "0", "0"],
        "S9": ["1", "5", "3", "1", "1", "0"],
        "S10": ["1", "4", "2", "2", "0", "0"],
        "S11": ["1", "1", "0", "0", "1", "0"],
        "S27": ["1", "0", "-", "-", "-", "-"],
        "S29": ["1", "2", "1", "0", "0", "1"],
        "L6": ["1", "2", "1", "1", "0", "0"],
    }


def test_memory_counts_though_it_was_given_back(run: Run) -> None:
    _, rows, _ = run
    assert int(rows["S4"][7]) >= 60


def test_an_error_of_ours_fails_the_run_with_its_request(run: Run) -> None:
    said, _, page = run
    assert "/500 was answered 500." in said
    assert "FAILED test_product.py::test_that_breaks_something_unseen" in said
    assert "1 failed, 7 passed" in said
    assert "**1 test failed.**" in page


def test_the_matrices_have_every_status_that_came(run: Run) -> None:
    _, _, page = run
    assert "## Callers" in page
    assert "| Operation | stranger | friend |" in page
    assert "| GET /404 | 404 / 401 | - |" in page
