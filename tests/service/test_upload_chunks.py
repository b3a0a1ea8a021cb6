"""Chunks: each stored once, in order (section 4.5)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import FormData

from tests.service.upload_fixtures import UploadApi, form, make_uploader, serving_uploads, settings_for, sha256

FILE = bytes(range(256)) * 4
HALF = len(FILE) // 2


@pytest.fixture(scope="module")
async def api(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UploadApi]:
    async with serving_uploads(settings_for(mongo_url, tmp_path_factory.mktemp("installers"))) as served:
        yield served


async def test_a_file_comes_in_chunks_and_keeps_its_bytes(api: UploadApi) -> None:
    caller = make_uploader()
    first = await api.chunk(caller, "f", FILE[:HALF], 0, len(FILE), name="setup.msi")
    last = await api.chunk(caller, "f", FILE[HALF:], HALF, len(FILE), name="setup.msi")
    assert first.body == {"Message": "Chunk received", "received": HALF, "total": len(FILE), "complete": False}
    name = last.body.pop("server_filename")
    assert last.body == {
        "Message": "Upload complete",
        "received": len(FILE),
        "total": len(FILE),
        "complete": True,
        "sha256": sha256(FILE),
    }
    assert name.endswith(".msi")
    assert api.files(caller) == [name]
    assert (api.folder / caller.tenant_id / name).read_bytes() == FILE
