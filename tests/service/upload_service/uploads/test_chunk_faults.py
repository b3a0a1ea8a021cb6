"""Chunks from unreliable networks, faulty clients and dying processes, over HTTP to two replicas.

The model is the acknowledged bytes of a transfer: they are the content of its file.
"""

import asyncio
import random
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.api import Answer
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.services.replicas import expire_lease, two_replicas, until_released
from tests.support.services.upload import UploadApi, make_uploader, sha256
from tests.support.wait import until
from upload_service.settings import UploadSettings

Got = TypeVar("Got")
FILE_IDS = ("one", "two", "three", "four")
SIZES = (2, 40, 300_000)  # bytes of a file; the last size is more than a socket buffer


@dataclass
class Transfer:
    """A transfer: `content` is the file of the client, and the first `offset` bytes are acknowledged."""

    content: bytes
    offset: int = 0
    server_filename: str = ""

    @property
    def total(self) -> int:
        return len(self.content)

    @property
    def open(self) -> bool:
        return self.offset < self.total


@dataclass(frozen=True)
class Setup:
    """Two replicas with one database, one folder and one event loop."""

    runner: asyncio.Runner
    replicas: tuple[UploadApi, UploadApi]
    database: MongoDatabase

    def run(self, work: Coroutine[Any, Any, Got]) -> Got:
        return self.runner.run(work)

    async def leases(self, caller: Caller, file_id: str) -> int | None:
        """The number of leases of a transfer; None without a record."""
        record = await self.database["uploads"].find_one({"tenant_id": caller.tenant_id, "file_id": file_id})
        return int(record["fence"]) if record else None

    async def make_idle(self, caller: Caller, file_id: str) -> None:
        """Let the last change of a transfer be two days ago."""
        query = {"tenant_id": caller.tenant_id, "file_id": file_id}
        changed_at = datetime.now(UTC) - timedelta(days=2)
        await self.database["uploads"].update_one(query, {"$set": {"updated_at": changed_at}})


class Chunks(RuleBasedStateMachine):
    """Transfers of a tenant."""

    setup: ClassVar[Setup]

    def __init__(self) -> None:
        super().__init__()
        self.caller = make_uploader()
        self.transfers: dict[str, Transfer] = {}
        self.cancelled: set[str] = set()
        self.random = random.Random(7)  # noqa: S311  bytes to tell apart, no secret

    @rule(file_id=st.sampled_from(FILE_IDS), size=st.sampled_from(SIZES), data=st.data())
    def begin(self, file_id: str, size: int, data: st.DataObject) -> None:
        if file_id not in self.transfers and file_id not in self.cancelled:
            self.transfers[file_id] = Transfer(self.random.randbytes(size))
            self.send_next(data, file_id)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def continue_transfer(self, data: st.DataObject) -> None:
        self.send_next(data, self.one_of(data, self.open))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish_all_at_once(self, data: st.DataObject) -> None:
        """Two transfers, or the same chunk through both replicas."""
        names = data.draw(st.sampled_from([self.open[:2], self.open[:1] * 2]), "file ids")
        rests = [self.chunk(data, name, self.transfers[name].offset, self.transfers[name].total) for name in names]
        for name, answer in zip(names, self.setup.run(whole_file(rests)), strict=True):
            self.expect_acknowledged(name, answer, self.transfers[name].total)

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def resend(self, data: st.DataObject) -> None:
        """Resend acknowledged bytes, possibly the last chunk or the whole file."""
        file_id = self.one_of(data, self.transfers)
        start, stop = self.part_before(data, file_id)
        self.expect_acknowledged(
            file_id, self.setup.run(self.chunk(data, file_id, start, stop)), self.transfers[file_id].offset
        )

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def resend_with_other_bytes(self, data: st.DataObject) -> None:
        file_id = self.one_of(data, self.transfers)
        start, stop = self.part_before(data, file_id)
        self.refused(file_id, self.chunk(data, file_id, start, stop, altered=True))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def leave_a_gap(self, data: st.DataObject) -> None:
        file_id = self.one_of(data, self.open)
        transfer = self.transfers[file_id]
        if transfer.offset + 1 < transfer.total:
            start = data.draw(st.integers(transfer.offset + 1, transfer.total - 1), "start")
            self.refused(file_id, self.chunk(data, file_id, start, transfer.total))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def overlap(self, data: st.DataObject) -> None:
        file_id = self.one_of(data, self.open)
        transfer = self.transfers[file_id]
        start = data.draw(st.integers(0, transfer.offset - 1), "start")
        stop = data.draw(st.integers(transfer.offset + 1, transfer.total), "stop")
        self.refused(file_id, self.chunk(data, file_id, start, stop))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), length=st.integers(0, 100))
    def send_a_body_that_differs_from_its_range(self, data: st.DataObject, length: int) -> None:
        file_id = self.one_of(data, self.open)
        transfer = self.transfers[file_id]
        end = data.draw(st.integers(transfer.offset, transfer.total - 1), "end")
        if length != end + 1 - transfer.offset:
            body = bytes(length)
            api = self.replica(data)
            self.refused(file_id, api.chunk(self.caller, file_id, body, transfer.offset, transfer.total, end=end))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        file_id = self.one_of(data, self.open)

        async def broken_off() -> None:
            held_chunk = await self.half_sent_chunk(data, file_id)
            await held_chunk.cancel()

        self.setup.run(broken_off())
        self.send_next(data, file_id)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        """A request stalls past its lease, another one continues, and the first resumes with other bytes."""
        file_id = self.one_of(data, self.open)

        async def stand_still() -> StalledChunk:
            held_chunk = await self.half_sent_chunk(data, file_id)
            await expire_lease(self.setup.database, self.caller, file_id)
            return held_chunk

        held_chunk = self.setup.run(stand_still())
        self.send_next(data, file_id)
        late = self.setup.run(held_chunk.resume())
        assert (late.status, "Retry-After" in late.headers) == (500, True), late.body

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        """Leave the transfer idle for days: the collector removes it, and its id is free."""
        file_id = self.one_of(data, self.transfers)

        async def gone() -> bool:
            return await self.setup.leases(self.caller, file_id) is None

        self.setup.run(self.setup.make_idle(self.caller, file_id))
        self.setup.run(until(gone))
        del self.transfers[file_id]

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """Remove an open transfer and keep the complete files."""
        file_id = self.one_of(data, self.transfers)
        is_open = self.transfers[file_id].open
        answer = self.setup.run(self.replica(data).cancel(self.caller, file_id))
        assert answer.status == (200 if is_open else 409), answer.body
        if is_open:
            del self.transfers[file_id]
            self.cancelled.add(file_id)

    @precondition(lambda self: self.cancelled)
    @rule(data=st.data(), start=st.integers(0, 39))
    def continue_after_a_cancellation(self, data: st.DataObject, start: int) -> None:
        file_id = self.one_of(data, self.cancelled)
        answer = self.setup.run(self.replica(data).chunk(self.caller, file_id, b"x", start, 40))
        assert (answer.status, answer.body["code"]) == (409, "transfer_cancelled")

    @invariant()
    def every_transfer_has_its_acknowledged_offset(self) -> None:
        for file_id, transfer in self.transfers.items():
            for answer in self.setup.run(whole_file(api.state(self.caller, file_id) for api in self.setup.replicas)):
                self.shows(transfer, answer)

    @invariant()
    def the_size_of_every_transfer_is_reserved(self) -> None:
        usage = self.setup.run(self.setup.replicas[0].usage(self.caller))
        assert usage == (0, sum(transfer.total for transfer in self.transfers.values()))

    def teardown(self) -> None:
        """Complete every file, and check its bytes."""
        _, api = self.setup.replicas
        for file_id, transfer in self.transfers.items():
            if transfer.open:
                rest = transfer.content[transfer.offset :]
                answer = self.setup.run(api.chunk(self.caller, file_id, rest, transfer.offset, transfer.total))
                self.expect_acknowledged(file_id, answer, transfer.total)
            claim = self.setup.run(api.claim(self.caller, transfer.server_filename, file_id))
            assert (claim.body["size"], claim.body["sha256"]) == (transfer.total, sha256(transfer.content))
            download = self.setup.run(api.get(api.address(self.caller, transfer.server_filename)))
            assert download.body == transfer.content
        usage = self.setup.run(api.usage(self.caller))
        assert usage == (sum(transfer.total for transfer in self.transfers.values()), 0)
        files = (path.name for path in (api.folder / self.caller.tenant_id).rglob("*") if path.is_file())
        assert sorted(files) == sorted(transfer.server_filename for transfer in self.transfers.values())

    @property
    def open(self) -> list[str]:
        return sorted(file_id for file_id, transfer in self.transfers.items() if transfer.open)

    def one_of(self, data: st.DataObject, file_ids: Iterable[str]) -> str:
        return data.draw(st.sampled_from(sorted(file_ids)), "file id")

    def replica(self, data: st.DataObject) -> UploadApi:
        return self.setup.replicas[data.draw(st.integers(0, 1), "replica")]

    def part_before(self, data: st.DataObject, file_id: str) -> tuple[int, int]:
        """A range of acknowledged bytes."""
        start = data.draw(st.integers(0, self.transfers[file_id].offset - 1), "start")
        return start, data.draw(st.integers(start + 1, self.transfers[file_id].offset), "stop")

    def send_next(self, data: st.DataObject, file_id: str) -> None:
        transfer = self.transfers[file_id]
        stop = data.draw(st.integers(transfer.offset + 1, transfer.total), "stop")
        self.expect_acknowledged(file_id, self.setup.run(self.chunk(data, file_id, transfer.offset, stop)), stop)

    async def chunk(self, data: st.DataObject, file_id: str, start: int, stop: int, *, altered: bool = False) -> Answer:
        transfer = self.transfers[file_id]
        sent = bytearray(transfer.content[start:stop])
        if altered:
            sent[data.draw(st.integers(0, len(sent) - 1), "place")] ^= 1
        return await self.replica(data).chunk(self.caller, file_id, bytes(sent), start, transfer.total)

    async def half_sent_chunk(self, data: st.DataObject, file_id: str) -> StalledChunk:
        """A request with the lease that has sent half of its body, with other bytes."""
        transfer = self.transfers[file_id]
        stop = data.draw(st.integers(transfer.offset + 1, transfer.total), "held until")
        await until_released(self.setup.database, self.caller, file_id)
        before = await self.setup.leases(self.caller, file_id)
        body = self.random.randbytes(stop - transfer.offset)
        chunk_with_lease = StalledChunk(self.replica(data), self.caller, file_id, body, transfer.offset, transfer.total)

        async def leased() -> bool:
            return await self.setup.leases(self.caller, file_id) != before

        await until(leased)
        return chunk_with_lease

    def expect_acknowledged(self, file_id: str, answer: Answer, offset: int) -> None:
        """Expect `offset` bytes and an unchanged file name."""
        transfer = self.transfers[file_id]
        transfer.offset = offset
        if not transfer.open and not transfer.server_filename:
            transfer.server_filename = answer.body.get("server_filename", "")
        self.shows(transfer, answer)

    def shows(self, transfer: Transfer, answer: Answer) -> None:
        assert answer.status == 200, answer.body
        fields = {name: value for name, value in answer.body.items() if name != "Message"}
        expected: dict[str, Any] = {"received": transfer.offset, "total": transfer.total, "complete": not transfer.open}
        if not transfer.open:
            expected |= {"server_filename": transfer.server_filename, "sha256": sha256(transfer.content)}
        assert fields == expected

    def refused(self, file_id: str, request: Coroutine[Any, Any, Answer]) -> None:
        """Expect a refusal with the expected byte; the invariant checks that nothing changed."""
        answer, transfer = self.setup.run(request), self.transfers[file_id]
        assert (answer.status, answer.body["code"]) == (400, "unexpected_chunk"), answer.body
        assert (answer.body["received"], answer.body["total"]) == (transfer.offset, transfer.total)
        expected = f"byte {transfer.offset} of {transfer.total}" if transfer.open else "complete"
        assert expected in answer.body["detail"]


async def whole_file(requests: Any) -> list[Answer]:
    return list(await asyncio.gather(*requests))


@pytest.fixture
def setup(settings: UploadSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    monkeypatch.setattr("upload_service.app.COLLECTION_PAUSE", 0.02)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        served = two_replicas(settings)
        replicas = runner.run(served.__aenter__())
        try:
            yield Setup(runner, (replicas.first, replicas.second), replicas.database)
        finally:
            runner.run(served.__aexit__(None, None, None))


@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.full)])
def test_a_file_has_exactly_the_acknowledged_bytes(setup: Setup, examples: int) -> None:
    Chunks.setup = setup
    run_state_machine_as_test(
        Chunks,
        settings=hypothesis.settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=[hypothesis.Phase.generate],  # A failing run has few steps; shrinking it takes minutes.
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
