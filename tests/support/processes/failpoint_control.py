"""Controls services of `failpoints`: they record their steps, or die after one."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica


@dataclass(frozen=True)
class StepControl:
    """The orders to one replica, in a shared folder.

    A step's name has the product's function, the operation, and its number since the order:
    `upload_service.uploads.store:MongoUploadStore.advance update_one #1`. A step of a work queue has its kind, too:
    `common.work:WorkQueue.finish of scan update_one #1`.
    """

    folder: Path

    def start_counting(self) -> None:
        """Record steps from now on."""
        (self.folder / "counted").write_text("")
        self._write_order(f"count {uuid4()}")

    def stop_counting(self) -> list[str]:
        """Stop recording. Returns the steps in order."""
        (self.folder / "order").unlink()
        return (self.folder / "counted").read_text(encoding="utf-8").splitlines()

    def die_after(self, step: str) -> None:
        self._write_order(f"die {uuid4()}\n{step}")

    @property
    def died(self) -> bool:
        """Whether the replica reached the ordered step and died."""
        return not (self.folder / "order").exists()

    def disarm(self) -> None:
        (self.folder / "order").unlink(missing_ok=True)

    def _write_order(self, order: str) -> None:
        new = self.folder / "order.new"
        new.write_text(order, encoding="utf-8")
        new.replace(self.folder / "order")


async def add_failing_replica(
    cluster: Cluster, service: str, *, patches: Mapping[str, Any] | None = None, **settings: str
) -> tuple[Replica, StepControl]:
    """Start another replica that can be ordered to die. `patches` are as in `failpoints`.

    `settings` are added to its environment.
    """
    folder = cluster.stores.folder / f"steps-{uuid4().hex[:8]}"
    folder.mkdir()
    all_patches = {place: value for place, value in cluster.patches.items() if place.startswith(f"{service}.")}
    all_patches |= patches or {}
    environment = {"STEPS": str(folder), "PATCHES": json.dumps(all_patches), **settings}
    command = (sys.executable, "-m", "tests.support.processes.failpoints", service)
    return await cluster.add(service, environment=environment, command=command), StepControl(folder)


@asynccontextmanager
async def single_replica(
    cluster: Cluster, service: str, *, patches: Mapping[str, Any] | None = None, **settings: str
) -> AsyncIterator[StepControl]:
    """Replace all replicas by one that can be ordered to die, within the block."""
    others = list(cluster.replicas[service])
    for replica in others:
        await cluster.remove(replica)
    single, steps = await add_failing_replica(cluster, service, patches=patches, **settings)
    try:
        yield steps
    finally:
        await cluster.remove(single)
        await cluster.start(**{service: len(others)})
