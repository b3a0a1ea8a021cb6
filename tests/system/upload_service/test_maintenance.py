"""`pkgrepo scrub` and `pkgrepo quota` during a running `pkgrepo up`: damaged files and used storage."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from yarl import URL

from common.mongo import MongoDatabase, open_database
from deploy.local.folder import DataFolder
from tests.support.processes.pkgrepo_command import administrator, pkgrepo, run_pkgrepo

PACKAGE = "Example.Hello"
pytestmark = pytest.mark.full  # tests/system/deploy/test_pkgrepo.py has a sample of each command.


@dataclass(frozen=True)
class Installation:
    """A running `pkgrepo up` with sample packages, an administrator and the upload database."""

    session: ClientSession
    base_url: str
    folder: Path
    database: MongoDatabase

    async def get(self, *path: str) -> Any:
        async with self.session.get("/".join((self.base_url, *path))) as answer:
            assert answer.status == 200
            return await answer.json()

    async def version(self) -> dict[str, Any]:
        versions = await self.get("get_package_versions", PACKAGE)
        newest: dict[str, Any] = versions[0]
        return newest

    async def download(self) -> tuple[int, bytes]:
        address = URL((await self.version())["INSTALLER_URL"], encoded=True)
        async with self.session.get(address) as answer:
            return answer.status, await answer.read()

    async def file(self) -> Path:
        """The stored file of the version."""
        address = URL((await self.version())["INSTALLER_URL"])
        return self.folder / "installers" / "demo" / address.parts[-2]

    async def command(self, *arguments: str) -> tuple[int | None, str]:
        return await pkgrepo(*arguments, "--data", str(self.folder))


@pytest.fixture(scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("care")
    async with run_pkgrepo(folder, "--demo") as service, ClientSession() as session:
        session.headers.update(await administrator(session, service.base_url, folder))
        async with open_database(DataFolder(folder).addresses().mongo_url, "upload") as database:
            yield Installation(session, service.base_url, folder, database)


async def test_a_flipped_byte_is_reported_until_the_file_is_restored(system: Installation) -> None:
    path, version = await system.file(), await system.version()
    content = path.read_bytes()
    status, output = await system.command("scrub")
    assert (status, "0 are damaged" in output) == (0, True)

    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    status, output = await system.command("scrub", "--tenant", "demo")
    assert status == 1
    for text in ("demo", PACKAGE, version["VERSION"], path.name, "altered", "1 are damaged"):
        assert text in output
    assert (await system.download())[0] == 404
    (damaged,) = await system.get("get_damaged_installers")
    assert damaged.pop("found_at")
    assert damaged == {
        "package_id": PACKAGE,
        "version": version["VERSION"],
        "version_uid": version["UID"],
        "server_filename": path.name,
        "damage": "altered",
    }
    assert (await system.get("server_information"))["damaged_installers"] == 1

    path.write_bytes(content)
    status, output = await system.command("scrub", "--tenant", "demo")
    assert (status, "0 are damaged" in output) == (0, True)
    assert await system.download() == (200, content)
    assert await system.get("get_damaged_installers") == []
    assert (await system.get("server_information"))["damaged_installers"] == 0


async def test_a_missing_file_is_listed_as_json(system: Installation) -> None:
    path = await system.file()
    away = path.rename(path.with_suffix(".away"))
    status, output = await system.command("scrub", "--json")
    away.rename(path)
    (document,) = json.loads(output[output.index("[ {") : output.rindex("]") + 1])
    damaged = (document["server_filename"], document["damage"], document["package_id"])
    assert (status, damaged) == (1, (path.name, "missing", PACKAGE))
    assert (await system.command("scrub"))[0] == 0


async def test_wrong_used_storage_is_reported_and_repaired(system: Installation) -> None:
    right = await system.get("server_information")
    assert (await system.command("quota"))[0] == 0
    await system.database["quotas"].update_one({"tenant_id": "demo"}, {"$inc": {"used": 12_345}})
    status, output = await system.command("quota", "--tenant", "demo")
    assert status == 1
    for text in ("demo", f"{right['storage_used'] + 12_345:,}", f"{right['storage_used']:,}", "--repair"):
        assert text in output
    status, output = await system.command("quota", "--repair")
    assert (status, "repaired" in output) == (0, True)
    assert await system.get("server_information") == right
    assert (await system.command("quota", "--tenant", "demo"))[0] == 0


async def test_a_storage_of_another_database_is_reported(system: Installation) -> None:
    mark = system.folder / "installers" / ".storage" / "id"
    identity = mark.read_text()
    path = await system.file()
    away = path.rename(path.with_suffix(".away"))
    mark.write_text("0" * 32)
    scrubbed, status = await system.command("scrub"), await system.command("status")
    mark.write_text(identity)
    away.rename(path)
    assert scrubbed[0] == 1
    assert "belongs to" in scrubbed[1]
    assert status[0] == 1
    assert "storage: StorageIsNotOurs" in status[1]
    assert (await system.command("status"))[0] == 0
    assert (await system.command("scrub"))[0] == 0
