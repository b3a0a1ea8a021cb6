"""Serving: connections that arrive faster than they are accepted, and the garbage collector of a server."""

import gc
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

from aiohttp import web

from common.http.server import collect_less_garbage, serving

MACHINES = 300
TIMEOUT = 0.5  # seconds; a dropped connection is tried again after one


async def test_three_hundred_connections_wait_until_they_are_accepted() -> None:
    async with serving(web.Application(), "127.0.0.1:0") as address:
        port = urlsplit(address).port
        with ExitStack() as machines:
            for _ in range(MACHINES):  # Nothing is accepted meanwhile: the event loop does not run.
                machines.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT))


def test_the_collector_skips_the_objects_of_the_start_and_runs_less_often() -> None:
    before = gc.get_threshold()
    try:
        collect_less_garbage()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
