"""An operator makes sure of what is stored: F17, a byte that flipped in a stored file, and the ledger of storage."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from yarl import URL

from common.mongo import MongoDatabase, open_database
from deploy.folder import DataFolder
from tests.system.deploy.test_pkgrepo import pkgrepo, up

PACKAGE = "Example.Hello"


@dataclass(frozen=True)
class House:
    """A running `pkgrepo up` with its sample packages, an administrator, and the database of its files."""

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
        found: dict[str, Any] = versions[0]
        return found

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
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("care")
    async with up(folder, "--demo") as service, ClientSession() as session:
        credentials = {"username": "admin", "password": (folder / "admin-password").read_text()}
        async with session.post(f"{service.base_url}/login", data=credentials) as answer:
            session.headers["Authorization"] = f"Bearer {(await answer.json())['message']}"
        async with open_database(DataFolder(folder).addresses().mongo_url, "upload") as database:
            yield House(session, service.base_url, folder, database)


async def test_a_byte_that_flipped_is_found_refused_and_shown_until_the_file_is_restored(house: House) -> None:
    path, version = await house.file(), await house.version()
    content = path.read_bytes()
    status, said = await house.command("scrub")
    assert (status, "0 are damaged" in said) == (0, True)

    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    status, said = await house.command("scrub", "--tenant", "demo")
    assert status == 1
    for told in ("demo", PACKAGE, version["VERSION"], path.name, "altered", "1 are damaged"):
        assert told in said
    assert (await house.download())[0] == 404
    (shown,) = await house.get("get_damaged_installers")
    assert shown.pop("found_at")
    assert shown == {
        "package_id": PACKAGE,
        "version": version["VERSION"],
        "version_uid": version["UID"],
        "server_filename": path.name,
        "damage": "altered",
    }
    assert (await house.get("server_information"))["damaged_installers"] == 1

    path.write_bytes(content)
    status, said = await house.command("scrub", "--tenant", "demo")
    assert (status, "0 are damaged" in said) == (0, True)
    assert await house.download() == (200, content)
    assert await house.get("get_damaged_installers") == []
    assert (await house.get("server_information"))["damaged_installers"] == 0


async def test_a_file_that_is_gone_is_listed_as_json(house: House) -> None:
    path = await house.file()
    content = path.read_bytes()
    path.unlink()
    status, said = await house.command("scrub", "--json")
    path.write_bytes(content)
    assert status == 1
    (found,) = json.loads(said[said.index("[ {") : said.rindex("]") + 1])
    assert (found["server_filename"], found["damage"], found["package_id"]) == (path.name, "missing", PACKAGE)
    assert (await house.command("scrub"))[0] == 0


async def test_a_version_with_a_damaged_file_is_repaired_by_publishing_it_again(house: House) -> None:
    path, version = await house.file(), await house.version()
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert (await house.command("scrub"))[0] == 1
    form = {"versions_uids": version["UID"]}
    async with house.session.delete(f"{house.base_url}/delete_package_version/{PACKAGE}", data=form) as answer:
        assert answer.status == 200
    assert await house.get("get_damaged_installers") == []
    assert not path.exists()
    published = {
        "package_version": version["VERSION"],
        "file_architect": version["ARCHITECTURE"],
        "file_type": version["INSTALLER_TYPE"],
        "file_scope": version["INSTALLER_SCOPE"],
        "file": BytesIO(content),
    }
    async with house.session.post(f"{house.base_url}/add_package_version/{PACKAGE}", data=published) as answer:
        assert answer.status == 201
    assert await house.download() == (200, content)


async def test_a_ledger_that_drifted_is_told_and_repaired(house: House) -> None:
    right = await house.get("server_information")
    assert (await house.command("quota"))[0] == 0
    await house.database["quotas"].update_one({"tenant_id": "demo"}, {"$inc": {"used": 12_345}})
    status, said = await house.command("quota", "--tenant", "demo")
    assert status == 1
    for told in ("demo", f"{right['storage_used'] + 12_345:,}", f"{right['storage_used']:,}", "--repair"):
        assert told in said
    status, said = await house.command("quota", "--repair")
    assert (status, "repaired" in said) == (0, True)
    assert await house.get("server_information") == right
    assert (await house.command("quota", "--tenant", "demo"))[0] == 0


@pytest.mark.parametrize("command", ["scrub", "quota"])
async def test_a_tenant_that_is_not_there_is_told_of(house: House, command: str) -> None:
    status, said = await house.command(command, "--tenant", "nobody")
    assert status == 2
    assert "nobody" in said
    assert "Traceback" not in said


async def test_a_storage_of_another_database_is_told_of(house: House) -> None:
    mark = house.folder / "installers" / ".storage" / "id"
    identity = mark.read_text()
    path = await house.file()
    away = path.rename(path.with_suffix(".away"))
    mark.write_text("0" * 32)
    scrubbed, asked = await house.command("scrub"), await house.command("status")
    mark.write_text(identity)
    away.rename(path)
    assert scrubbed[0] == 1
    assert "belongs to" in scrubbed[1]
    assert asked[0] == 1
    assert "storage: StorageIsNotOurs" in asked[1]
    assert (await house.command("status"))[0] == 0
    assert (await house.command("scrub"))[0] == 0
