"""The rules of chunks in any order, compared with a model."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from common.errors import InvalidRequest
from common.mongo import MongoDatabase, open_database
from tests.support.factories import make_caller, make_tenant
from tests.support.services.upload import make_transfers
from upload_service.model import ContentRange, FileId, Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings
from upload_service.storage.part_files import PROGRESS
from upload_service.uploads.store import MongoUploadStore

Answer = TypeVar("Answer")
FILE_IDS = st.sampled_from(["one", "two"])
TOTAL = 40
READERS = ThreadPoolExecutor(1)
CONTENT = {"one": bytes(range(TOTAL)), "two": bytes(range(100, 100 + TOTAL))}


@dataclass
class Body:
    """The body of a chunk; the connection breaks after the first `until` bytes."""

    data: bytes
    until: int | None = None
    suffix: str = ".exe"

    def large_blocks(self, length: int | None) -> AsyncIterator[bytes]:
        return self.blocks()

    async def blocks(self) -> AsyncIterator[bytes]:
        for position in range(0, len(self.data), 7):
            if self.until is not None and position >= self.until:
                raise ConnectionResetError
            yield self.data[position : position + 7]


@dataclass(frozen=True)
class Stores:
    """The stores shared by all examples; each example has its own tenant."""

    runner: asyncio.Runner
    database: MongoDatabase
    folder: Path


class Chunks(RuleBasedStateMachine):
    stores: ClassVar[Stores]

    def __init__(self) -> None:
        super().__init__()
        self.tenant = make_tenant()
        self.known: dict[str, Upload] = {}
        self.store, self.quota = MongoUploadStore(self.stores.database), MongoQuotaStore(self.stores.database)
        self.transfers = make_transfers(self.store, self.quota, self.stores.folder, READERS)

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.stores.runner.run(work)

    def offset(self, file_id: str) -> int:
        return self.known[file_id].offset if file_id in self.known else 0

    def send(self, file_id: str, start: int, body: Body, *, length: int | None = None, total: int = TOTAL) -> Upload:
        span = ContentRange(start, start + (len(body.data) if length is None else length) - 1, total)
        return self.run(self.transfers.append(make_caller(self.tenant), FileId(file_id), span, body))

    def refused(self, file_id: str, start: int, body: Body, *, length: int | None = None, total: int = TOTAL) -> None:
        try:
            self.send(file_id, start, body, length=length, total=total)
        except InvalidRequest:
            return
        raise AssertionError("the chunk was taken")

    @rule(file_id=FILE_IDS, length=st.integers(1, TOTAL))
    def next_chunk(self, file_id: str, length: int) -> None:
        offset = self.offset(file_id)
        if offset == TOTAL:
            return
        answer = self.send(file_id, offset, Body(CONTENT[file_id][offset : offset + length]))
        assert answer.offset == min(offset + length, TOTAL)
        self.known[file_id] = answer

    @precondition(lambda self: self.known)
    @rule(file_id=FILE_IDS, chunk=st.tuples(st.integers(0, TOTAL - 1), st.integers(1, TOTAL)))
    def repeated_chunk(self, file_id: str, chunk: tuple[int, int]) -> None:
        start, end = chunk[0], sum(chunk)
        if end > self.offset(file_id):
            return
        answer = self.send(file_id, start, Body(CONTENT[file_id][start:end]))
        assert replace(answer, fence=0) == replace(self.known[file_id], fence=0)
        wrong = bytes(byte ^ 1 for byte in CONTENT[file_id][start:end])
        self.refused(file_id, start, Body(wrong))

    @rule(file_id=FILE_IDS, start=st.integers(0, TOTAL - 1), length=st.integers(1, TOTAL))
    def gap_or_overlap(self, file_id: str, start: int, length: int) -> None:
        offset, data = self.offset(file_id), CONTENT[file_id][start : start + length]
        if start == offset or start + len(data) <= offset:
            return
        self.refused(file_id, start, Body(data))

    @precondition(lambda self: self.known)
    @rule(file_id=FILE_IDS, total=st.integers(TOTAL + 1, TOTAL + 5))
    def other_total(self, file_id: str, total: int) -> None:
        if file_id in self.known:
            self.refused(file_id, self.offset(file_id), Body(b"x"), total=total)

    @rule(file_id=FILE_IDS, length=st.integers(1, TOTAL), difference=st.integers(-TOTAL, TOTAL))
    def wrong_length(self, file_id: str, length: int, difference: int) -> None:
        offset = self.offset(file_id)
        length = min(length, TOTAL - offset)
        if not length or not difference or length + difference < 0:
            return
        self.refused(file_id, offset, Body(bytes(length + difference)), length=length)

    @rule(file_id=FILE_IDS, length=st.integers(1, TOTAL), until=st.integers(0, TOTAL))
    def interrupted_chunk(self, file_id: str, length: int, until: int) -> None:
        offset = self.offset(file_id)
        data = CONTENT[file_id][offset : offset + length]
        if len(data) <= until + 7:
            return
        try:
            self.send(file_id, offset, Body(data, until=until))
        except ConnectionResetError:
            return
        raise AssertionError("the chunk was taken")

    @rule()
    def another_process(self) -> None:
        """Continue in a new process."""
        self.transfers = make_transfers(self.store, self.quota, self.stores.folder, READERS)

    @invariant()
    def records_and_files_are_as_acknowledged(self) -> None:
        folder = self.stores.folder / self.tenant.tenant_id
        parts = (path for path in folder.rglob("*") if path.is_file() and path.name != PROGRESS)
        files = {path.name: path.read_bytes() for path in parts}
        expected = {}
        for file_id, upload in self.known.items():
            expected[upload.server_filename or f"upload_{file_id}.part"] = CONTENT[file_id][: upload.offset]
            assert (upload.offset == TOTAL) == (upload.status is Status.COMPLETE)
            if upload.status is Status.COMPLETE:
                assert upload.sha256 == hashlib.sha256(CONTENT[file_id]).hexdigest()
            record = self.run(self.transfers.find(make_caller(self.tenant), FileId(file_id)))
            assert replace(record, fence=0) == replace(upload, fence=0)
        assert files == expected
        assert self.run(self.quota.usage(self.tenant.tenant_id))[:2] == (0, TOTAL * len(self.known))


@pytest.mark.parametrize("examples", [3, pytest.param(12, marks=pytest.mark.full)])
def test_chunks_in_any_order_follow_the_rules(settings: UploadSettings, examples: int) -> None:
    settings.installers.mkdir()
    opened = open_database(settings.mongo_url, settings.database)
    with asyncio.Runner() as runner:
        try:
            Chunks.stores = Stores(runner, runner.run(opened.__aenter__()), settings.installers)
            run_state_machine_as_test(
                Chunks,
                settings=hypothesis.settings(
                    max_examples=examples,
                    stateful_step_count=25,
                    deadline=None,
                    derandomize=True,
                    suppress_health_check=list(hypothesis.HealthCheck),
                ),
            )
        finally:
            runner.run(opened.__aexit__(None, None, None))
