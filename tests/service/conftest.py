"""Fixtures for the service tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.mongo import MongoDatabase
from tests.support.databases import own_database
from tests.support.servers.object_faults import ObjectFaults, run_object_faults
from tests.support.servers.object_storage import ObjectServer
from tests.support.services.storage_pair import StoragePair, make_storage_pair
from upload_service.store import INDEXES


@pytest.fixture(scope="session")
async def upload_indexes(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    """A database of upload_service. Tests share it, because MongoDB creates indexes slowly."""
    async with own_database(mongo_url, indexes=INDEXES) as database:
        yield database


@pytest.fixture
async def upload_database(upload_indexes: MongoDatabase) -> MongoDatabase:
    """The shared database of upload_service: with indexes, without documents, not used by a service."""
    for name in await upload_indexes.list_collection_names():
        await upload_indexes[name].delete_many({})
    return upload_indexes


@pytest.fixture
def storages(upload_database: MongoDatabase, tmp_path: Path, object_server: ObjectServer) -> StoragePair:
    return make_storage_pair(upload_database, tmp_path, object_server)


@pytest.fixture
async def faults(object_server: ObjectServer) -> AsyncIterator[ObjectFaults]:
    """The object storage of `faulty_storages`."""
    async with run_object_faults(object_server) as faults:
        yield faults


@pytest.fixture
def faulty_storages(upload_database: MongoDatabase, tmp_path: Path, faults: ObjectFaults) -> StoragePair:
    """A folder, and an object storage that cannot read the objects in `faults.unreadable`."""
    return make_storage_pair(upload_database, tmp_path, faults.server)
