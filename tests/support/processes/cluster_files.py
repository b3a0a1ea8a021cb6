"""Runs the tests of the shared cluster one after another, as a plugin of pytest.

A cluster takes half a processor for seconds to start, and a tenth of one while nobody uses it.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

ROOT = Path(__file__).parents[3]


class ClusterFiles(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the first process the files of the cluster first, and every other process last."""

    def _assign_work_unit(self, node: Any) -> None:
        first = node.gateway.id == "gw0"
        scope = next((scope for scope in self.workqueue if _uses_cluster(scope) == first), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


@cache
def _uses_cluster(file: str) -> bool:
    return "cluster: Cluster" in (ROOT / file).read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Replace the scheduler of `--dist loadfile`."""
    return ClusterFiles(config, log) if config.option.dist == "loadfile" else None


class IdleCluster:
    """Stops the cluster after the last test of a file, if the next file does not use it."""

    def __init__(self) -> None:
        self._users: set[Path] = set()
        self._running: tuple[pytest.FixtureDef[Any], Any] | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._users = {item.path for item in session.items if "cluster" in getattr(item, "fixturenames", ())}

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname == "cluster":
            self._running = fixturedef, request

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Any:
        try:
            return (yield)
        finally:
            if self._running and nextitem and nextitem.path not in self._users:
                (fixture, request), self._running = self._running, None
                fixture.finish(request)
