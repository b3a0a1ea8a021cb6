"""Fixtures for the tests of upload_service."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from common.mongo import MongoDatabase
from tests.support.services.inspections import Inspecting
from tests.support.services.replicas import Replicas, two_replicas
from tests.support.services.scans import FAR, Scanning
from tests.support.services.upload import UploadApi, serving_uploads, settings_for
from upload_service.settings import UploadSettings


@pytest.fixture(scope="module")
async def api(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UploadApi]:
    """A service shared by the tests of a file; each test has its own tenant."""
    async with serving_uploads(settings_for(mongo_url, tmp_path_factory.mktemp("installers"))) as served:
        yield served


@pytest.fixture(scope="module")
async def replicas(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replicas]:
    """Two services shared by the tests of a file; each test has its own tenant."""
    async with two_replicas(settings_for(mongo_url, tmp_path_factory.mktemp("installers"))) as both:
        yield both


@pytest.fixture
def database(upload_database: MongoDatabase) -> MongoDatabase:
    """The records of one test."""
    return upload_database


@pytest.fixture
def settings(mongo_url: str, database: MongoDatabase, tmp_path: Path) -> UploadSettings:
    """The settings of a service for one test."""
    return settings_for(mongo_url, tmp_path / "installers", database=database.name)


@pytest.fixture
def inspecting(settings: UploadSettings, database: MongoDatabase) -> Inspecting:
    return Inspecting(settings, database)


@pytest.fixture
async def scanning(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scanning]:
    async with AsyncExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr("upload_service.app.SCANNERS", 0)
            serving = serving_uploads(settings.model_copy(update={"scanner_url": FAR}))
            api = await stack.enter_async_context(serving)
        yield Scanning(api, database)
