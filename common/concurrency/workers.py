"""A service in several processes on one host, where no orchestrator starts them."""

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
STOPPING = (signal.SIGINT, signal.SIGTERM)
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class WorkerSlot:
    """Where a worker sits: the `folder` of all of them, and a number, which whoever replaces it takes over."""

    folder: Path
    number: int


Work = Callable[[WorkerSlot], None]


def run_workers(count: int, work: Work) -> None:
    """Do `work` in so many processes until SIGINT or SIGTERM, which end each of them as they would end one alone.

    A worker that was ended, by whatever signal, is replaced: the service was not asked to end. Where one gives up the
    others are ended, and so is this process, with its status. Where this process is killed its workers notice, see
    `common.http.server.until_stopped`.
    """
    ended, end = os.pipe()
    for number in STOPPING:
        signal.signal(number, lambda *_: os.write(end, b"."))
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        desks = [WorkerSlot(Path(folder), number) for number in range(count)]
        _keep([_start(work, desk) for desk in desks], desks, work, ended)


def _keep(workers: list[ForkProcess], desks: Sequence[WorkerSlot], work: Work, ended: int) -> None:
    try:
        while ended not in wait([ended, *(worker.sentinel for worker in workers)]):
            for place, worker in enumerate(workers):
                if worker.exitcode is None:
                    continue
                if worker.exitcode > 0:
                    sys.exit(worker.exitcode)
                if wait([ended], PAUSE):  # Who asks a whole process group asks its workers too.
                    return
                workers[place] = _start(work, desks[place])
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _start(work: Work, desk: WorkerSlot) -> ForkProcess:
    worker = _FORK.Process(target=_work, args=(work, desk))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # Else our handler might take the worker's.
    try:
        worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return worker


def _work(work: Work, desk: WorkerSlot) -> None:
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    work(desk)
