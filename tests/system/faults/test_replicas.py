"""Several replicas of upload_service at one transfer: concurrent, paused past the lease, disconnected."""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.faults.invariants import missing_versions, violations
from tests.support.faults.publishers import run_publishers, wait_until_announced
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import add_failing_replica
from tests.support.processes.replica_client import connect_to_replica
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.servers.proxy import Mode, run_proxy
from tests.support.services.upload import UploadApi
from tests.support.wait import until

CHUNK = 3 << 20  # bytes; half of it is more than one write
FREED_WITHIN = 60.0  # seconds


@pytest.fixture
async def replica_pair(cluster: Cluster) -> AsyncIterator[tuple[UploadApi, UploadApi]]:
    async with AsyncExitStack() as stack:
        first, second = cluster.replicas["upload_service"]
        ways = [await stack.enter_async_context(connect_to_replica(cluster, replica)) for replica in (first, second)]
        yield ways[0], ways[1]


@pytest.mark.parametrize("files", [1, pytest.param(10, marks=pytest.mark.full)])
async def test_a_chunk_sent_to_two_replicas_at_once_counts_once(
    cluster: Cluster, replica_pair: tuple[UploadApi, UploadApi], files: int
) -> None:
    caller, size = make_caller(), 2000

    async def send_a_file() -> None:
        file_id, content = uuid4().hex, os.urandom(10 * size)
        for start in range(0, len(content), size):
            sent = [
                rival.chunk(caller, file_id, content[start : start + size], start, len(content))
                for rival in replica_pair
            ]
            both = await asyncio.gather(*sent)
            assert [answer.status for answer in both] == [200, 200], both
            assert both[0].body == both[1].body
        await _check_file(cluster, caller, both[0], content)

    await asyncio.gather(*(send_a_file() for _ in range(files)))
    await _check_invariants(cluster, caller)


@pytest.mark.parametrize(
    "stopped_at", [1, pytest.param(2, marks=pytest.mark.full)], ids=["in the middle", "at the last chunk"]
)
async def test_a_replica_paused_past_its_lease_changes_nothing(
    cluster: Cluster, replica_pair: tuple[UploadApi, UploadApi], stopped_at: int
) -> None:
    (stale, fresh), caller, file_id = replica_pair, make_caller(), uuid4().hex
    content = os.urandom(3 * CHUNK)
    for start in range(0, stopped_at * CHUNK, CHUNK):
        assert (await stale.chunk(caller, file_id, content[start : start + CHUNK], start, len(content))).status == 200
    start = stopped_at * CHUNK
    held = StalledChunk(stale, caller, file_id, os.urandom(CHUNK), start, len(content))
    await _wait_for_bytes(cluster, caller, start + 1)
    replica = cluster.replicas["upload_service"][0]
    replica.pause()
    try:
        # It waits until the lease has expired. An acknowledgement by the log of offsets needs real time.
        answer = await fresh.chunk(caller, file_id, content[start : start + CHUNK], start, len(content))
        assert answer.status == 200, answer.body
    finally:
        replica.resume()
    assert (await held.resume()).status >= 400
    for later in range(start + CHUNK, len(content), CHUNK):
        answer = await fresh.chunk(caller, file_id, content[later : later + CHUNK], later, len(content))
        assert answer.status == 200, answer.body
    await _check_file(cluster, caller, answer, content)
    again = await stale.chunk(caller, file_id, content[-CHUNK:], len(content) - CHUNK, len(content))
    assert (again.status, again.body) == (200, answer.body)
    await _check_invariants(cluster, caller)


@pytest.mark.full  # tests/service/upload_service/uploads/test_offset_logs.py has each moment of a chunk.
async def test_a_replica_paused_after_its_last_byte_changes_nothing(cluster: Cluster) -> None:
    """The replica has synced the last chunk, and is paused before its answer."""
    caller, file_id, content = make_caller(), uuid4().hex, os.urandom(4000)
    environment = {"PAUSE": "upload_service.storage.part_files:PartFile.sync:2"}
    command = (sys.executable, "-m", "tests.support.processes.failpoints", "upload_service")
    replica = await cluster.add("upload_service", environment=environment, command=command, receives_connections=False)
    fresh_one = cluster.replicas["upload_service"][0]
    async with connect_to_replica(cluster, replica) as stale, connect_to_replica(cluster, fresh_one) as fresh:
        assert (await stale.chunk(caller, file_id, content[:2000], 0, 4000)).status == 200
        stopped = asyncio.create_task(stale.chunk(caller, file_id, content[2000:], 2000, 4000))

        async def held() -> bool:
            return replica.is_paused

        await until(held)
        answer = await fresh.chunk(caller, file_id, content[2000:], 2000, 4000)
        assert answer.status == 200, answer.body
        replica.resume()
        assert (await stopped).status == 500
    await cluster.remove(replica)
    await _check_file(cluster, caller, answer, content)
    await _check_invariants(cluster, caller)


async def test_the_lease_of_a_disconnected_client_is_released(cluster: Cluster) -> None:
    """The lease must be released in a minute. The body timeout is shorter here."""
    caller, file_id, content = make_caller(), uuid4().hex, os.urandom(CHUNK)
    cut_off, _ = await add_failing_replica(cluster, "upload_service", patches={"common.http.bodies:TIMEOUT": 1.0})
    async with (
        run_proxy(cut_off.address) as network,
        connect_to_replica(cluster, cut_off, address=network.address) as far,
        connect_to_replica(cluster, cluster.replicas["upload_service"][0]) as near,
    ):
        held = StalledChunk(far, caller, file_id, content, 0, len(content))
        await _wait_for_bytes(cluster, caller, 1)
        await network.set_mode(Mode.HALF_OPEN)
        answers = []

        async def taken() -> bool:
            answers.append(await near.chunk(caller, file_id, content, 0, len(content)))
            return answers[-1].status == 200

        await until(taken, timeout=FREED_WITHIN)
        await held.cancel()
    await cluster.remove(cut_off)
    assert all(answer.status == 500 for answer in answers[:-1]), answers
    await _check_file(cluster, caller, answers[-1], content)
    await _check_invariants(cluster, caller)


@pytest.mark.full
async def test_uploads_finish_with_one_two_and_three_replicas(cluster: Cluster) -> None:
    """Under load (L9), no client must retry with one, two or three replicas."""
    api, targets = await cluster.services.tenant(), cluster.proxies["upload_service"].targets
    third = await cluster.add("upload_service")
    every = list(targets)
    for number in (1, 2, 3):
        targets[:] = every[:number]
        async with run_publishers(api, size=1 << 20) as work:
            await work.wait_for_progress()
        assert not work.client.failures, number
        assert await missing_versions(api, work.published) == [], number
    await wait_until_announced(cluster, api.tenant_id)
    assert await violations(cluster, [api.tenant_id]) == []
    await cluster.remove(third)


async def _wait_for_bytes(cluster: Cluster, caller: Caller, size: int) -> None:
    """Wait until a file of the tenant's only transfer has this many bytes."""
    folder = cluster.stores.installers / caller.tenant_id / "transfers"

    async def has_bytes() -> bool:
        return any(path.is_file() and path.stat().st_size >= size for path in folder.glob("*/*"))

    await until(has_bytes)


async def _check_file(cluster: Cluster, caller: Caller, answer: Answer, content: bytes) -> None:
    """Check that the answer, the record and the file match the content."""
    assert answer.body["complete"], answer.body
    assert answer.body["sha256"] == hashlib.sha256(content).hexdigest()
    name = answer.body["server_filename"]
    record = await cluster.mongo["upload"]["uploads"].find_one({"tenant_id": caller.tenant_id, "server_filename": name})
    assert record is not None
    assert (record["sha256"], record["size"]) == (answer.body["sha256"], len(content))
    assert (cluster.stores.installers / caller.tenant_id / name).read_bytes() == content


async def _check_invariants(cluster: Cluster, caller: Caller) -> None:
    await wait_until_announced(cluster, caller.tenant_id)
    assert await violations(cluster, [caller.tenant_id]) == []
