"""Concurrent publishers for tests of faults. They record acknowledged versions and failed requests."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.system.publishing import Published, add_package, package_id
from tests.support.system.services import Api
from tests.support.wait import until

SIZE = 4000  # bytes of an installer, sent in four chunks
PUBLISHER_COUNT = 4
PAUSE = 0.05  # seconds between two installers of a publisher, which leaves CPU time to the services


@dataclass
class Publishers:
    """Publishers of one package. `published` are the acknowledged versions."""

    client: RetryingClient
    package_id: str
    size: int = SIZE
    published: list[Published] = field(default_factory=list)
    is_stopping: bool = False

    async def wait_for_progress(self) -> float:
        """Wait until every publisher has published another version. Returns the seconds."""
        loop, target = asyncio.get_running_loop(), len(self.published) + 2 * PUBLISHER_COUNT

        async def published() -> bool:
            return len(self.published) >= target

        began = loop.time()
        await until(published, timeout=60)
        return loop.time() - began

    def unexpected_failures(self) -> list[str]:
        """The failures other than 500 problems, each as a sentence: closed connections and unexpected answers."""
        failures = self.client.failures
        return [
            f"{text} was the answer, {failures[text]} times" for text in failures if len(text) < 5 or text[:4] != "500 "
        ]

    async def publish(self, publisher: int) -> None:
        for number in count():
            content = os.urandom(self.size)
            version = await self.client.publish(self.package_id, f"{publisher}.{number}", content, chunk=self.size // 4)
            self.published.append(version)
            if self.is_stopping:
                return
            await asyncio.sleep(PAUSE)


@asynccontextmanager
async def run_publishers(api: Api, *, size: int = SIZE) -> AsyncIterator[Publishers]:
    """Run publishers of installers of `size` bytes within the block. Each finishes its last upload."""
    publishers = Publishers(RetryingClient(api), package_id(), size)
    await add_package(api, publishers.package_id)
    async with asyncio.TaskGroup() as group:
        for publisher in range(PUBLISHER_COUNT):
            group.create_task(publishers.publish(publisher))
        yield publishers
        publishers.is_stopping = True


async def wait_until_announced(cluster: Cluster, tenant_id: str) -> None:
    """Wait until all complete uploads are announced, and the catalog has received the events."""
    complete = {"tenant_id": tenant_id, "status": {"$in": ["complete", "linked"]}}

    async def announced() -> bool:
        uploads = await cluster.mongo["upload"]["uploads"].find(complete).to_list()
        names = [upload["server_filename"] for upload in uploads]
        received = {"tenant_id": tenant_id, "server_filename": {"$in": names}, "finished_at": {"$exists": True}}
        count = await cluster.mongo["catalog"]["finished_uploads"].count_documents(received)
        return count == len(names) and not any("announce" in upload["work"] for upload in uploads)

    await until(announced, timeout=60)
