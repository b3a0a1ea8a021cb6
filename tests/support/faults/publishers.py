"""Publishers at work while something fails: what they were answered, and when the whole goes on by itself again."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.wait import until
from tests.support.whole.publishing import Published, add_package, package_id
from tests.support.whole.services import Api

SIZE = 4000  # bytes of an installer, sent in two chunks
PUBLISHER_COUNT = 4
PAUSE = 0.05  # seconds between two installers of a publisher, who leaves the machine to what is being tested


@dataclass
class Publishers:
    """`published` are the versions that were acknowledged so far."""

    client: RetryingClient
    package_id: str
    size: int = SIZE
    published: list[Published] = field(default_factory=list)
    is_stopping: bool = False

    async def wait_for_progress(self) -> float:
        """Wait until every publisher has got through once from now on; the seconds that took."""
        loop, wanted = asyncio.get_running_loop(), len(self.published) + 2 * PUBLISHER_COUNT

        async def published() -> bool:
            return len(self.published) >= wanted

        began = loop.time()
        await until(published, timeout=60)
        return loop.time() - began

    def unexpected_failures(self) -> list[str]:
        """What publishers were told beside problems, as sentences: a connection that ended, an answer of no sense."""
        told = self.client.failures
        return [f"{what} was the answer, {told[what]} times" for what in told if len(what) < 5 or what[:4] != "500 "]

    async def publish(self, lane: int) -> None:
        for number in count():
            content = os.urandom(self.size)
            version = await self.client.publish(self.package_id, f"{lane}.{number}", content, chunk=self.size // 2)
            self.published.append(version)
            if self.is_stopping:
                return
            await asyncio.sleep(PAUSE)


@asynccontextmanager
async def run_publishers(api: Api, *, size: int = SIZE) -> AsyncIterator[Publishers]:
    """Let publishers publish within the block, installers of `size` bytes; each ends what it has begun."""
    work = Publishers(RetryingClient(api), package_id(), size)
    await add_package(api, work.package_id)
    async with asyncio.TaskGroup() as group:
        for lane in range(PUBLISHER_COUNT):
            group.create_task(work.publish(lane))
        yield work
        work.is_stopping = True


async def wait_until_announced(cluster: Cluster, tenant_id: str) -> None:
    """Wait until everything that is complete is announced, and heard of."""
    complete = {"tenant_id": tenant_id, "status": {"$in": ["complete", "linked"]}}

    async def heard() -> bool:
        uploads = await cluster.mongo["upload"]["uploads"].find(complete).to_list()
        names = [upload["server_filename"] for upload in uploads]
        there = {"tenant_id": tenant_id, "server_filename": {"$in": names}, "finished_at": {"$exists": True}}
        count = await cluster.mongo["catalog"]["finished_uploads"].count_documents(there)
        return count == len(names) and all(upload["announced"] for upload in uploads)

    await until(heard, timeout=60)
