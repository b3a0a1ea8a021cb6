"""Makes services of `failpoints` count their steps, or die after one."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.processes.cluster import Fleet
from tests.support.processes.replica import Replica


@dataclass(frozen=True)
class Steps:
    """The orders to one replica, in a shared folder.

    A step is named by the function of the product it happens in, what happens, and which time it is since the telling:
    `upload_service.uploads.store:MongoUploadStore.advance update_one #1`.
    """

    folder: Path

    def count(self) -> None:
        """Start counting."""
        (self.folder / "counted").write_text("")
        self._tell(f"count {uuid4()}")

    def counted(self) -> list[str]:
        """Stop counting; the steps in order."""
        (self.folder / "order").unlink()
        return (self.folder / "counted").read_text(encoding="utf-8").splitlines()

    def die_after(self, step: str) -> None:
        self._tell(f"die {uuid4()}\n{step}")

    @property
    def died(self) -> bool:
        """Whether the replica reached the ordered step and died."""
        return not (self.folder / "order").exists()

    def disarm(self) -> None:
        (self.folder / "order").unlink(missing_ok=True)

    def _tell(self, order: str) -> None:
        new = self.folder / "order.new"
        new.write_text(order, encoding="utf-8")
        new.replace(self.folder / "order")


async def add_failing(
    fleet: Fleet, service: str, *, failpoint: str = "", patches: Mapping[str, Any] | None = None
) -> tuple[Replica, Steps]:
    """Start another replica that can be ordered to die; the failpoint and the patches as in `failpoints`."""
    folder = fleet.stores.folder / f"steps-{uuid4().hex[:8]}"
    folder.mkdir()
    all_patches = {place: value for place, value in fleet.patches.items() if place.startswith(f"{service}.")}
    all_patches |= patches or {}
    environment = {"STEPS": str(folder), "PATCHES": json.dumps(all_patches), "FAILPOINT": failpoint}
    command = (sys.executable, "-m", "tests.support.processes.failpoints", service)
    return await fleet.add(service, environment=environment, command=command), Steps(folder)


@asynccontextmanager
async def alone(fleet: Fleet, service: str, *, patches: Mapping[str, Any] | None = None) -> AsyncIterator[Steps]:
    """Run one replica that can be ordered to die, as the only one, within the block."""
    others = list(fleet.replicas[service])
    for replica in others:
        await fleet.remove(replica)
    mortal, steps = await add_failing(fleet, service, patches=patches)
    try:
        yield steps
    finally:
        await fleet.remove(mortal)
        await fleet.start(**{service: len(others)})
