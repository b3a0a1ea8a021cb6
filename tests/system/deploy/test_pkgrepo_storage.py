"""`pkgrepo storage migrate` during a running `pkgrepo up`, and `pkgrepo up` with an object storage."""

import asyncio
import hashlib
import os
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientSession

from deploy.local.demo import SAMPLES as PUBLISHED
from tests.support.processes.pkgrepo_command import PKGREPO, TIMEOUT, administrator, pkgrepo, run_pkgrepo
from tests.support.servers.object_storage import ObjectServer
from tests.support.wait import until

SAMPLES = sum(len(sample.versions) for sample in PUBLISHED)


pytestmark = pytest.mark.full  # test_pkgrepo.py has a sample.


@pytest.fixture(scope="module")
def storage(object_server: ObjectServer) -> dict[str, str]:
    """The environment with the settings of an object storage."""
    return {name.upper(): text for name, text in object_server.settings(uuid4().hex).items()}


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The data folder of a running `up` without object storage, with a few installers."""
    data = tmp_path_factory.mktemp("moving")
    async with run_pkgrepo(data, "--demo"):
        yield data


def files(folder: Path) -> list[Path]:
    return sorted((folder / "installers" / "demo").glob("*.*"))


async def migrate(folder: Path, storage: Mapping[str, str], home: str) -> tuple[int | None, str]:
    return await pkgrepo("storage", "migrate", "--to", home, "--data", str(folder), **storage)


async def test_an_unreachable_object_storage_is_reported(folder: Path, storage: dict[str, str]) -> None:
    status, output = await migrate(folder, {**storage, "S3_ENDPOINT": "http://127.0.0.1:9"}, "s3")
    assert status == 1
    assert "pkgrepo: The object storage does not answer" in output
    assert len(files(folder)) == SAMPLES


async def test_an_interrupted_move_continues_where_it_stopped(folder: Path, storage: dict[str, str]) -> None:
    moving = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        moving.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as hole:
        port = hole.sockets[0].getsockname()[1]
        environment = {**os.environ, **storage, "S3_ENDPOINT": f"http://127.0.0.1:{port}"}
        command = (*PKGREPO, "storage", "migrate", "--to", "s3", "--data", str(folder))
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=STDOUT)
        async with asyncio.timeout(TIMEOUT):
            await moving.wait()
            process.send_signal(signal.SIGINT)
            output, _ = await process.communicate()
    assert process.returncode == 130, output
    assert b"Run the command again to continue" in output
    assert len(files(folder)) == SAMPLES
    status, again = await migrate(folder, storage, "s3")
    assert (status, files(folder)) == (0, []), again
    assert f"{SAMPLES} files were moved to the object storage." in again


async def test_a_damaged_file_stays_and_the_command_fails(folder: Path, storage: dict[str, str]) -> None:
    assert (await migrate(folder, storage, "folder"))[0] == 0
    damaged, *_ = files(folder)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    status, output = await migrate(folder, storage, "s3")
    assert (status, files(folder)) == (1, [damaged])
    assert f"demo/{damaged.name}: altered" in output
    assert "1 files were not moved" in output
    assert (await migrate(folder, storage, "s3"))[0] == 1


async def test_up_moves_files_and_redirects_downloads_to_the_object_storage(
    tmp_path: Path, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**storage, "S3_URL": f"{storage['S3_URL']}-up", "INSTALLER_STORAGE": "s3", "S3_REDIRECT": "true"}
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    async with run_pkgrepo(tmp_path, "--demo") as service, ClientSession() as session:
        installer = await an_installer(session, service.base_url, tmp_path)
        address = installer["INSTALLER_URL"]

        async def is_sent_there() -> bool:
            async with session.get(address, allow_redirects=False) as answer:
                return answer.status == 307 and answer.headers["Location"].startswith(storage["S3_ENDPOINT"])

        await until(is_sent_there, timeout=TIMEOUT)
        async with session.get(address) as answer:
            assert hashlib.sha256(await answer.read()).hexdigest() == installer["INSTALLER_SHA256"].lower()


async def an_installer(session: ClientSession, base_url: str, folder: Path) -> dict[str, Any]:
    """A version of a sample package, as administrators see it."""
    headers = await administrator(session, base_url, folder)
    async with session.get(f"{base_url}/get_package_versions/Example.Hello", headers=headers) as answer:
        versions: list[dict[str, Any]] = await answer.json()
    return versions[0]
