"""The health check of a container, and its probe of readiness for `rolling-upgrade`."""

import asyncio
import sys

import pytest
from aiohttp import web

from common.http.server import READINESS, add_probes, serving
from deploy.health import main


@pytest.mark.parametrize(("probe", "code"), [("livez", 0), ("readyz", 1)])
async def test_a_service_that_is_not_ready_is_alive(probe: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app = web.Application()
    add_probes(app)
    async with serving(app, "127.0.0.1:0") as address:
        app[READINESS].stopping = True
        monkeypatch.setenv("MANAGEMENT_LISTEN", address.removeprefix("http://"))
        monkeypatch.setattr(sys, "argv", ["deploy.health", probe])
        assert await asyncio.to_thread(main) == code
