"""The counter of downloads while its database fails, or its caller is cancelled."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, Counter

from upload_service.downloads.service import DownloadCounter
from upload_service.downloads.store import Download, MongoDownloadStore
from upload_service.model import Upload

UPLOAD = Upload("acme", "f", "u", 1, size=1, version_uid="v1")


@dataclass
class MemoryStore:
    """A store that fails as long as `failing` names the method, and waits in `mark` until `answers`."""

    failing: str = ""
    marks: set[Download] = field(default_factory=set)
    counted: list[str] = field(default_factory=list)
    marking: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def mark(self, downloads: Sequence[Download]) -> list[Download]:
        self.marking.set()
        await self.answers.wait()
        if self.failing == "mark":
            raise OSError("unreachable")
        new = [download for download in downloads if download not in self.marks]
        self.marks.update(new)
        return new

    async def add(self, downloads: Sequence[Download]) -> None:
        self.counted += [download.client for download in downloads]
        if self.failing == "add":
            raise OSError("unreachable")


def counter_with(store: MemoryStore) -> DownloadCounter:
    metric = Counter("downloads", "Downloads.", ["tenant_id"], registry=CollectorRegistry())
    return DownloadCounter(cast("MongoDownloadStore", store), metric)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.answers.set()
    return store


async def test_downloads_wait_while_the_database_fails(store: MemoryStore) -> None:
    counter, store.failing = counter_with(store), "mark"
    counter.count(UPLOAD, "pc-1")
    with pytest.raises(OSError, match="unreachable"):
        await counter.flush()
    store.failing = ""
    await counter.flush()
    assert store.counted == ["pc-1"]


async def test_a_count_that_may_be_written_is_not_repeated(store: MemoryStore) -> None:
    counter, store.failing = counter_with(store), "add"
    counter.count(UPLOAD, "pc-1")
    with pytest.raises(OSError, match="unreachable"):
        await counter.flush()
    store.failing = ""
    await counter.flush()
    assert store.counted == ["pc-1"]


async def test_a_cancelled_flush_still_counts_what_it_marked(store: MemoryStore) -> None:
    counter = counter_with(store)
    store.answers.clear()
    counter.count(UPLOAD, "pc-1")
    flush = asyncio.create_task(counter.flush())
    await store.marking.wait()
    flush.cancel()
    counter.count(UPLOAD, "pc-2")
    store.answers.set()
    await counter.flush()
    assert store.counted == ["pc-1", "pc-2"]


async def test_waiting_downloads_are_limited(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.downloads.service.MAX_WAITING", 2)
    counter = counter_with(store)
    for number in range(3):
        counter.count(UPLOAD, f"pc-{number}")
    await counter.flush()
    assert store.counted == ["pc-0", "pc-1"]
