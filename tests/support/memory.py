"""How much memory the product's processes take: that of the tests, where most services run, and those it started."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class MemoryGrowth:
    """By how many bytes all processes together ever grew, each measured from where it was first seen."""

    def __init__(self) -> None:
        self.largest = 0
        self._before: dict[str, int] = {}

    def start(self) -> None:
        """Forget what the processes held at most, and get to know the new ones."""
        for process in _processes():
            with suppress(OSError):  # it has just ended
                (process / "clear_refs").write_text("5", encoding="ascii")  # 5 is: VmHWM begins anew
                self._before.setdefault(process.name, _bytes(process, "VmRSS"))

    def end(self) -> None:
        """Look at what they held at most since `begin`."""
        grown = 0
        for process in _processes():
            with suppress(OSError):
                grown += max(0, _bytes(process, "VmHWM") - self._before.get(process.name, sys.maxsize))
        self.largest = max(self.largest, grown)


def _processes() -> Iterator[Path]:
    """Ours and those it started that run the same Python: services are among them, databases are not."""
    own = Path("/proc") / str(os.getpid())
    yield own
    for pid in (own / "task" / own.name / "children").read_text(encoding="ascii").split():
        process = Path("/proc") / pid
        with suppress(OSError):
            if (process / "exe").resolve() == Path(sys.executable).resolve():
                yield process


def _bytes(process: Path, name: str) -> int:
    status = (process / "status").read_text(encoding="ascii")
    # A process that has ended and was not waited for has none.
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024 if f"{name}:" in status else 0
