"""Servers in Docker containers. Each has its own loopback port and is removed at the end of the tests."""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from docker import DockerClient
from docker.errors import DockerException
from docker.models.containers import Container
from requests import RequestException


async def published_port(stack: AsyncExitStack, image: str, port: int, command: Sequence[str] = ()) -> int | None:
    """Run `image` until the stack closes. Returns the loopback port of its `port`.

    None if there is no engine or no image.
    """
    if not _engine_listens():
        return None
    try:
        client = await asyncio.to_thread(DockerClient.from_env)
        stack.callback(client.close)
        container = await asyncio.to_thread(_run, client, image, port, command)
    except (DockerException, RequestException):
        return None
    stack.push_async_callback(asyncio.to_thread, container.remove, force=True, v=True)
    return await asyncio.to_thread(_port_of, container, port)


def _run(client: DockerClient, image: str, port: int, command: Sequence[str]) -> Container:
    ports = {f"{port}/tcp": ("127.0.0.1", 0)}  # 0: the engine chooses
    return client.containers.run(image, list(command), detach=True, ports=ports)


def _port_of(container: Container, port: int) -> int:
    container.reload()
    bindings = container.ports.get(f"{port}/tcp")
    if not bindings:
        pytest.fail(f"A container ended at once: {container.logs(tail=10).decode()}", pytrace=False)
    return int(bindings[0]["HostPort"])


def _engine_listens() -> bool:
    """Whether the engine's socket accepts connections. DockerClient would leak its socket otherwise."""
    scheme, _, path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as attempt:
        return attempt.connect_ex(path) == 0
