"""Memory use of the test process, where most services run, and of the processes that it started."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class MemoryGrowth:
    """The largest growth of all processes together, in bytes, each from its first measurement."""

    def __init__(self) -> None:
        self.largest = 0
        self._before: dict[str, int] = {}

    def start(self) -> None:
        """Reset the peaks of the processes, and add new processes."""
        for process in _processes():
            with suppress(OSError):  # the process has just ended
                (process / "clear_refs").write_text("5", encoding="ascii")  # 5 resets VmHWM
                self._before.setdefault(process.name, _bytes(process, "VmRSS"))

    def end(self) -> None:
        """Measure the peaks since `start`."""
        growth = 0
        for process in _processes():
            with suppress(OSError):
                growth += max(0, _bytes(process, "VmHWM") - self._before.get(process.name, sys.maxsize))
        self.largest = max(self.largest, growth)


def _processes() -> Iterator[Path]:
    """This process and its children that run the same Python: services, but not databases."""
    own = Path("/proc") / str(os.getpid())
    yield own
    for pid in (own / "task" / own.name / "children").read_text(encoding="ascii").split():
        process = Path("/proc") / pid
        with suppress(OSError):
            if (process / "exe").resolve() == Path(sys.executable).resolve():
                yield process


def _bytes(process: Path, name: str) -> int:
    status = (process / "status").read_text(encoding="ascii")
    # A zombie process has no such line.
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024 if f"{name}:" in status else 0
