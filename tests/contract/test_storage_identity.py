"""Every kind of home has the database's id in the same way, and is known by it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from common.mongo import MongoDatabase, open_database
from tests.objects import ObjectServer
from upload_service.identity import Identity, StorageIsNotOurs
from upload_service.installers import FolderInstallers, Homes
from upload_service.installers_s3 import ObjectInstallers, homes_of
from upload_service.model import Home
from upload_service.parts import Parts
from upload_service.settings import StorageSettings
from upload_service.store_care import MongoKnownStore


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectServer]:
    server = ObjectServer()
    server.start()
    server.make_bucket()
    yield server
    server.stop()


@pytest.fixture
def homes(objects: ObjectServer, tmp_path: Path) -> Homes:
    storage = StorageSettings(**objects.settings(uuid4().hex)).object_storage
    assert storage is not None
    return homes_of(FolderInstallers(tmp_path, Parts(tmp_path)), ObjectInstallers(storage))


@pytest.fixture
async def databases(mongo_url: str) -> AsyncIterator[tuple[MongoDatabase, MongoDatabase]]:
    name = f"test_identity_{uuid4().hex[:8]}"
    async with open_database(mongo_url, name) as ours, open_database(mongo_url, f"{name}_other") as theirs:
        yield ours, theirs
        for database in (ours, theirs):
            await database.client.drop_database(database.name)


@pytest.mark.parametrize("home", list(Home))
async def test_an_empty_home_becomes_ours_and_nobody_elses(
    homes: Homes, databases: tuple[MongoDatabase, MongoDatabase], tmp_path: Path, home: Home
) -> None:
    ours, theirs = (Identity(MongoKnownStore(database), homes, tmp_path) for database in databases)
    for _ in range(2):
        assert await ours.is_ours(home)
        await ours.check(home)
        assert not await theirs.is_ours(home)
        with pytest.raises(StorageIsNotOurs):
            await theirs.check(home)
    assert [path.name for path in (tmp_path / ".storage").iterdir()] == (["id"] if home is Home.FOLDER else [])
    assert [kept async for kept in homes.named(home).listed()] == []
