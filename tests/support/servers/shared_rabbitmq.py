"""One RabbitMQ for all processes of a test run, as a plugin of the controlling pytest process."""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.local.servers import NotStarted
from tests.support.servers.ports import free_port, wait_for_answer
from tests.support.servers.rabbitmq import AMQP_HEADER, METHOD_ON_CHANNEL_0, is_installed, run_node, url_of


class SharedRabbitMQ:
    """Starts while the workers collect their tests, and gives each worker a virtual host. Stops after all workers."""

    def __init__(self) -> None:
        self._virtual_hosts: Sequence[str] = ()
        self._failure: NotStarted | None = None
        self._port = free_port()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        if is_installed() and "TEST_RABBITMQ_URL" not in os.environ:
            self._virtual_hosts = [f"gw{number}" for number in range(len(specs))]
            self._thread.start()

    def pytest_configure_node(self, node: Any) -> None:
        """Pass the URL to a worker. A worker that replaces a crashed one starts its own RabbitMQ."""
        if (name := node.gateway.id) in self._virtual_hosts:
            node.workerinput["rabbitmq_url"] = url_of(self._port, name)

    def pytest_unconfigure(self) -> None:
        self._stop.set()
        if self._virtual_hosts:
            self._thread.join()

    async def _run(self) -> None:
        try:
            async with run_node(self._port, self._virtual_hosts):
                await asyncio.to_thread(self._stop.wait)
        except NotStarted as error:
            self._failure = error

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._failure:
            for line in (f"RabbitMQ {self._failure.reason}.", *self._failure.log[-10:]):
                terminalreporter.write_line(line)


async def shared_url(workerinput: Mapping[str, Any]) -> str | None:
    """The URL of the shared RabbitMQ, when it answers. None if this worker must start its own."""
    url: str | None = workerinput.get("rabbitmq_url")
    if url:
        port = urlsplit(url).port
        assert port
        try:
            await wait_for_answer(port, AMQP_HEADER, METHOD_ON_CHANNEL_0)
        except TimeoutError:
            pytest.fail("The RabbitMQ of this run did not start; the end of the output says why.", pytrace=False)
    return url
