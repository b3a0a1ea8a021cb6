"""Files are read again if several processes received their chunks."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.support.services.upload import make_uploader, serving_uploads, sha256
from tests.support.wait import TIMEOUT
from upload_service.settings import UploadSettings
from upload_service.storage.part_files import digest_of

FILE = b"installer " * 100
SIZE = len(FILE)
MANY = 40  # more than the shared threads of a process


async def test_rereading_files_leaves_the_shared_threads_free(
    settings: UploadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_uploader()
    reading, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def read_slowly(path: Path) -> str:
        loop.call_soon_threadsafe(reading.set)
        go_on.wait()
        return digest_of(path)

    monkeypatch.setattr("upload_service.uploads.session.digest_of", read_slowly)
    async with serving_uploads(settings) as first:
        await asyncio.gather(*(first.chunk(caller, f"f{number}", FILE[:10], 0, SIZE) for number in range(MANY)))
    async with serving_uploads(settings) as second, asyncio.TaskGroup() as group:
        ends = [group.create_task(second.chunk(caller, f"f{number}", FILE[10:], 10, SIZE)) for number in range(MANY)]
        try:
            async with asyncio.timeout(TIMEOUT):
                await reading.wait()
                while not _all_written(settings.installers):
                    await asyncio.to_thread(int)
        finally:
            go_on.set()
    assert {end.result().body["sha256"] for end in ends} == {sha256(FILE)}


def _all_written(folder: Path) -> bool:
    return all(path.stat().st_size == SIZE for path in folder.rglob("*.part"))
