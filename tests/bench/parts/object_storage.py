"""An installer in object storage: its move, its memory, and its downloads beside those from the folder."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen
from uuid import uuid4

from yarl import URL

from common.mongo import MongoDatabase, open_database
from tests.bench.limits import GB
from tests.bench.parts.transfer import (
    account_with_package,
    download_costs,
    installer_url,
    make_installer,
    per_gb,
    upload_in_one_call,
)
from tests.bench.report import Limit, Line, PartResult, Section, absolute_line, number, ratio_line
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Process, measure_costs, run_services
from tests.support.servers.object_storage import BUCKET, ObjectServer
from tests.support.servers.ports import free_port
from tests.support.servers.s3_program import S3Program
from tests.support.services.storage_pair import make_storage_pair
from tests.support.wait import until
from upload_service.model import StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.migration import Outcome
from upload_service.storage.s3 import S3Storage

READERS = 50


@contextmanager
def run_object_server(program: str) -> Iterator[ObjectServer]:
    """Run an object storage with a bucket in another process: this program, or moto's server."""
    if program:
        server = S3Program(program=program)
        server.start()
        server.make_bucket()
        try:
            yield server
        finally:
            server.remove()
    else:
        with _run_moto() as moto:
            yield moto


@contextmanager
def _run_moto() -> Iterator[ObjectServer]:
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
    with run_object_server(run.s3_program) as server:
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
        lines = await _measure_services(run, server, size)
        lines += await _measure_moves(run, server, size)
    name = Path(run.s3_program).name or "moto's server"
    text = f"""{size} MiB into an object storage and back, by upload_service's own code in one process. The storage
is {name} in another, whose seconds are most of them. Memory is beyond what there was before."""
    columns = ("step", "seconds", "CPU, s/GB", "memory, MiB")
    failures = [] if same else ["objects: what came back is not what was put"]
    return PartResult(lines, sections=[Section("Object storage", text, columns, rows)], failures=failures)


async def _measure_services(run: Run, server: ObjectServer, size: int) -> list[Line]:
    """Measure the move of an installer, and its downloads beside those of one in the folder."""
    installer, length = run.stores.folder / "installer", size * MIB
    make_installer(installer, size)
    settings = {name.upper(): text for name, text in server.settings("services").items()}
    async with (
        run_services(run.stores, {**settings, "INSTALLER_STORAGE": "s3"}) as bench,
        open_database(run.stores.mongo_url, "upload") as database,
    ):
        account = await account_with_package(bench)
        uids = {}
        for name in ("folder", "S3"):
            uids[name] = await upload_in_one_call(bench, account, installer, f"in {name}")
            if name == "folder":
                await _keep_in_folder(database, uids[name])
        await until(partial(_is_moved, database, uids["S3"]), timeout=300)
        replica, address = await bench.replica("upload_service")
        direct, through = {}, {}
        for name, uid in uids.items():
            url = await installer_url(bench, account, uid)
            own = str(url.with_port(URL(address).port))
            direct[name] = await download_costs({"upload_service": replica}, own, length)
            through[name] = await download_costs(bench.processes, str(url), length)
    limits = [Limit("from the folder", sum(costs["folder"].values())) for costs in (direct, through)]
    return [
        ratio_line("S3: down, from upload_service", direct["S3"], "s/GB", limits[0], 2.0),
        ratio_line("S3: down, through the gateway", through["S3"], "s/GB", limits[1], 2.0),
    ]


async def _measure_moves(run: Run, server: ObjectServer, size: int) -> list[Line]:
    """Measure moves in this process, which does nothing else."""
    root = run.stores.folder / "moves"
    root.mkdir()
    content, own = bytes(os.urandom(MIB)) * size, {"mover": Process(os.getpid())}
    costs = []
    async with open_database(run.stores.mongo_url, "bench_moves") as database:
        storages = make_storage_pair(database, root, server)
        upload = await storages.add_installer(content)
        for kind in (StorageKind.S3, StorageKind.FOLDER):
            spent, outcomes = await measure_costs(own, storages.move_all(kind))
            assert outcomes == [Outcome.MOVED]
            costs.append(sum(per_gb(spent, upload.size).values()))
    titles = ("S3: the move of an upload", "S3: its move back to the folder")
    return [absolute_line(title, cost, "s/GB", 1.5) for title, cost in zip(titles, costs, strict=True)]


async def _keep_in_folder(database: MongoDatabase, uid: str) -> None:
    """Let the mover pass over the file of a version: it seems to be changed all the time."""

    async def is_announced() -> bool:
        return await database["uploads"].find_one({"version_uid": uid, "work.announce": {"$exists": False}}) is not None

    await until(is_announced)
    never = datetime.now(UTC) + timedelta(days=1)
    await database["uploads"].update_one({"version_uid": uid}, {"$set": {"updated_at": never}})


async def _is_moved(database: MongoDatabase, uid: str) -> bool:
    return await database["uploads"].find_one({"version_uid": uid, "home": "s3", "left": ""}) is not None
