"""Fixtures for the tests of scans."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from common.mongo import MongoDatabase
from tests.support.services.scans import FAR, Scanning
from tests.support.services.upload import serving_uploads
from upload_service.settings import UploadSettings


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
