"""Runs a service that dies at a given step: `python -m tests.support.processes.failpoints upload_service`.

The product has no code for this: functions of the drivers and the service are wrapped before the service runs. A
service that may kill itself runs in a fork, and is forked again after each kill. The environment has the orders:

PATCHES  JSON, `{"upload_service.app:COLLECTION_PAUSE": 0.1}`: other values of constants.
PAUSE    `upload_service.storage.part_files:PartFile.sync:3`: SIGSTOP after the third call of a method.
STEPS    a folder of `failpoint_control.Steps`. Each change outside the process is a step.

Steps are changes in MongoDB, changes of files, messages to the broker and their acknowledgements, and answers of other
services. New steps of the product need no change here.
"""

import ctypes
import functools
import importlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import aio_pika
from motor.motor_asyncio import AsyncIOMotorCollection
from pymongo.results import DeleteResult, UpdateResult

from common.http.server import run
from common.service_client.client import ServiceClient
from common.work import WorkQueue

PRODUCT = ("auth_service", "catalog_service", "client_registry", "common", "gateway", "upload_service")
CHANGES = ("insert_one", "update_one", "update_many", "delete_one", "delete_many", "find_one_and_update")
FILES = ("open", "mkdir", "rmdir", "rename", "replace", "unlink", "ftruncate", "pwrite", "fsync", "fdatasync")
WORKERS = ("asyncio", "reader")  # names of worker threads
PR_SET_PDEATHSIG = 1


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class StepWatch:
    """Counts the steps of this process, and dies after the one that `order` names; see `failpoint_control.Steps`."""

    def __init__(self, folder: Path) -> None:
        self._order = folder / "order"
        self._counted = folder / "counted"
        self._known = ""
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._unlink = os.unlink  # without the wrapper

    def wrap_drivers(self) -> None:
        for name in CHANGES:
            self._wrap_call(AsyncIOMotorCollection, name, _changed_data)
        self._wrap_call(aio_pika.Exchange, "publish", lambda _: True)
        self._wrap_call(aio_pika.IncomingMessage, "ack", lambda _: True)
        self._wrap_call(ServiceClient, "json", lambda _: True)
        for name in FILES:
            self._wrap_file(name)

    def _wrap_call(self, owner: type, name: str, effective: Callable[[Any], bool]) -> None:
        call = getattr(owner, name)

        @functools.wraps(call)
        async def step(*args: Any, **kwargs: Any) -> Any:
            result = await call(*args, **kwargs)
            if effective(result):
                self._passed(name)
            return result

        setattr(owner, name, step)

    def _wrap_file(self, name: str) -> None:
        call = getattr(os, name)

        @functools.wraps(call)
        def step(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            if name != "open" or (len(args) > 1 and args[1] & os.O_CREAT):
                self._passed(name)
            return result

        setattr(os, name, step)

    def _passed(self, kind: str) -> None:
        function = _product_function(sys._getframe(2))
        if function is None:
            return
        with self._lock:
            try:
                order = self._order.read_text(encoding="utf-8")
            except FileNotFoundError:
                return
            if order != self._known:
                self._known, self._seen = order, Counter()
            self._seen[f"{function} {kind}"] += 1
            step = f"{function} {kind} #{self._seen[f'{function} {kind}']}"
            if order.startswith("count"):
                with self._counted.open("a", encoding="utf-8") as counted:
                    counted.write(f"{step}\n")
            elif order.partition("\n")[2] == step:
                self._unlink(self._order)
                kill_process()


def _changed_data(result: object) -> bool:
    if isinstance(result, UpdateResult):
        return bool(result.modified_count or result.upserted_id)
    if isinstance(result, DeleteResult):
        return bool(result.deleted_count)
    return result is not None


def _product_function(frame: FrameType | None) -> str | None:
    """The innermost running function of the product, as `module:Class.method`; a public one if possible."""
    innermost = "a worker thread" if threading.current_thread().name.startswith(WORKERS) else None
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if module.partition(".")[0] in PRODUCT and module != "common.http.server":  # It runs all the others.
            if not frame.f_code.co_name.startswith(("_", "<")):
                queue = frame.f_locals.get("self")
                return f"{module}:{name} of {queue.kind}" if isinstance(queue, WorkQueue) else f"{module}:{name}"
            innermost = f"{module}:{name}"
        frame = frame.f_back
    return innermost


def patch(patches: dict[str, Any]) -> None:
    """Replace constants of modules."""
    for place, value in patches.items():
        module, _, name = place.partition(":")
        assert hasattr(importlib.import_module(module), name), f"{place} does not exist"
        setattr(importlib.import_module(module), name, value)


def pause_at(place: str) -> None:
    """Send SIGSTOP after one call of a method of the product."""
    module, path, number = place.split(":")
    owner, _, name = path.rpartition(".")
    target: Any = functools.reduce(getattr, owner.split("."), importlib.import_module(module))
    call, calls = getattr(target, name), count(1)

    @functools.wraps(call)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if next(calls) == int(number):
            os.kill(os.getpid(), signal.SIGSTOP)
        return result

    setattr(target, name, wrapped)


def serve(service: str) -> None:
    """Run the service in this process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    StepWatch(Path(os.environ["STEPS"])).wrap_drivers()
    run(importlib.import_module(f"{service}.app").SERVICE)


def main(service: str) -> int:
    """Run the service; with STEPS in a fork, and again after each kill. Returns the status of a normal exit."""
    product = importlib.import_module(f"{service}.app")
    patch(json.loads(os.environ.get("PATCHES", "{}")))
    if "PAUSE" in os.environ:
        pause_at(os.environ["PAUSE"])
    if "STEPS" not in os.environ:
        run(product.SERVICE)
        return 0
    child, is_stopping = 0, False

    def end(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        os.kill(child, signal.SIGTERM)

    while True:
        child = os.fork()
        if not child:
            serve(service)
            os._exit(0)
        signal.signal(signal.SIGTERM, end)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if is_stopping or status != -signal.SIGKILL:
            return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
