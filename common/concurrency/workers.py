"""Runs a service in several processes on one host, if no orchestrator does."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import TemporaryDirectory

PAUSE = 1.0  # seconds before a worker that died is replaced
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class WorkerSlot:
    """A worker's number, which its replacement gets too, and the `folder` that all workers share."""

    folder: Path
    number: int


Work = Callable[[WorkerSlot], None]


def run_workers(count: int, work: Work) -> None:
    """Do `work` in `count` processes until SIGINT or SIGTERM, which stops all of them.

    A worker that was killed by a signal is replaced. If a worker exits with an error, the others are stopped and this
    process exits with the same status. Workers notice if this process is killed, see `server.until_stopped`.
    """
    stop_reader, stop_writer = os.pipe()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: os.write(stop_writer, b"."))
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        slots = [WorkerSlot(Path(folder), number) for number in range(count)]
        _supervise([_start(work, slot) for slot in slots], slots, work, stop_reader)


def _supervise(workers: list[ForkProcess], slots: Sequence[WorkerSlot], work: Work, stop_reader: int) -> None:
    try:
        while stop_reader not in wait([stop_reader, *(worker.sentinel for worker in workers)]):
            for index, worker in enumerate(workers):
                if worker.exitcode is None:
                    continue
                if worker.exitcode > 0:
                    sys.exit(worker.exitcode)
                if wait([stop_reader], PAUSE):  # A signal to the process group reaches the workers first.
                    return
                workers[index] = _start(work, slots[index])
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _start(work: Work, slot: WorkerSlot) -> ForkProcess:
    worker = _FORK.Process(target=_run, args=(work, slot))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # The worker must not run our handler.
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return worker


def _run(work: Work, slot: WorkerSlot) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    work(slot)
