"""The cost and memory of moving a large installer to an object storage and back, in this process."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen
from uuid import uuid4

from tests.bench.limits import GB
from tests.bench.parts.transfer import make_installer
from tests.bench.report import PartResult, Section, number
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Process
from tests.support.servers.object_storage import BUCKET, ObjectServer
from tests.support.servers.ports import free_port
from upload_service.model import Upload
from upload_service.settings import StorageSettings
from upload_service.storage.s3 import S3Storage

READERS = 50


@contextmanager
def run_object_server() -> Iterator[ObjectServer]:
    """Run an object storage with a bucket in another process."""
    server = ObjectServer(free_port())
    command = (sys.executable, "-m", "moto.server", "-p", str(server.port))
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urlopen(Request(f"{server.endpoint}/{BUCKET}", method="PUT")).close()  # noqa: S310
                break
            except URLError:
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()


async def read(storage_backend: S3Storage, upload: Upload) -> str:
    """Read an installer. Returns its SHA-256."""
    digest = hashlib.sha256()
    async for block in storage_backend.read(upload, 0, upload.size):
        await asyncio.to_thread(digest.update, block)
    return digest.hexdigest()


async def measure(run: Run) -> PartResult:
    """Store an installer, read it, and read a small one concurrently."""
    size = max(1, run.scale.installer // 4)
    rows: list[tuple[str, ...]] = []

    async def measured(label: str, amount: int, work: Awaitable[Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
        before, begun, used = own.memory, time.monotonic(), own.cpu_seconds
        result = await work
        spent, cost = time.monotonic() - begun, (own.cpu_seconds - used) / (amount * MIB) * GB
        rows.append((label, f"{spent:.1f}", number(cost), f"{(own.largest_memory - before) / MIB:.0f}"))
        return result

    own = Process(os.getpid())
    source = run.stores.folder / "object"
    expected = make_installer(source, size)
    with run_object_server() as server:
        storage = StorageSettings(**server.settings("bench")).object_storage
        assert storage is not None
        storage_backend, upload_id = S3Storage(storage), uuid4().hex
        upload = Upload("bench", "f", upload_id, 0, server_filename=upload_id, size=size * MIB)
        small = Upload("bench", "f", "small", 0, server_filename=uuid4().hex, size=min(size, 16) * MIB)
        await storage_backend.size(upload)
        await measured("put", size, storage_backend.put(upload, source))
        same: bool = await measured("read", size, read(storage_backend, upload)) == expected
        os.truncate(source, small.size)
        await storage_backend.put(small, source)
        many = asyncio.gather(*(read(storage_backend, small) for _ in range(READERS)))
        await measured(f"{READERS} reads of {small.size // MIB} MiB at once", READERS * small.size // MIB, many)
    text = f"""{size} MiB into an object storage and back, by upload_service's own code in one process; the
storage is moto's server in another, whose seconds are most of them. Memory is beyond what there was before."""
    columns = ("step", "seconds", "CPU, s/GB", "memory, MiB")
    failures = [] if same else ["objects: what came back is not what was put"]
    return PartResult(sections=[Section("Object storage", text, columns, rows)], failures=failures)
