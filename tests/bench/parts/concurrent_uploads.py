"""Concurrent uploads of many files and a large one: correctness and memory."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.parts.transfer import per_gb
from tests.bench.report import PartResult, Section, number
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Account, Bench, measure_costs, run_services

CHUNK = 8 * MIB
ALLOWED = {"gateway": 64, "upload_service": 150}  # MiB of growth
HEAD = b'--bench\r\nContent-Disposition: form-data; name="chunk"; filename="setup.exe"\r\n\r\n'
TAIL = b"\r\n--bench--\r\n"


@dataclass
class GeneratedFile:
    """A file that is generated while it is sent. All its blocks differ."""

    name: str
    size: int
    random: bytes = field(default_factory=lambda: os.urandom(MIB - 32))
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    server_filename: str = ""

    async def send(self, bench: Bench, account: Account) -> None:
        """Upload all chunks in order."""
        for start in range(0, self.size, CHUNK):
            headers = {
                **dict([account.bearer]),
                "X-File-ID": self.name,
                "Content-Range": f"bytes {start}-{start + CHUNK - 1}/{self.size}",
                "Content-Type": "multipart/form-data; boundary=bench",
                "Content-Length": str(len(HEAD) + CHUNK + len(TAIL)),
            }
            url = f"{account.base_url}/upload_package_version"
            async with bench.session.post(url, data=self._chunk(start), headers=headers) as answer:
                body = await answer.json()
        self.server_filename = body["server_filename"]

    async def _chunk(self, start: int) -> AsyncIterator[bytes]:
        yield HEAD
        for position in range(start, start + CHUNK, MIB):
            block = f"{self.name:>16}{position:16}".encode() + self.random
            self.digest.update(block)
            yield block
        yield TAIL

    def is_whole(self, folder: Path) -> bool:
        """Whether the stored file has the SHA-256 of the sent file."""
        with (folder / self.server_filename).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.digest.hexdigest()


async def measure(run: Run) -> PartResult:
    """Upload all files. The result has their correctness and the memory growth."""
    many, small, large = run.scale.crowd
    files = [
        GeneratedFile("large", large * MIB),
        *(GeneratedFile(f"small-{number}", small * MIB) for number in range(many)),
    ]
    amount = sum(file.size for file in files)
    async with run_services(run.stores) as bench:
        account = await bench.account("bench-crowd")
        idle = {name: process.memory for name, process in bench.processes.items()}

        async def send_all() -> None:
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(file.send(bench, account))

        spent, _ = await measure_costs(bench.processes, send_all())
        growth = {name: (bench.processes[name].largest_memory - idle[name]) / MIB for name in ALLOWED}
    folder = run.stores.installers / account.tenant_id
    equal = sum(await asyncio.gather(*(asyncio.to_thread(file.is_whole, folder) for file in files)))
    shutil.rmtree(folder)
    each = per_gb(spent, amount)
    rows = [
        (name, number(idle[name] / MIB), number(growth[name]), str(allowed), number(each[name]))
        for name, allowed in ALLOWED.items()
    ]
    text = f"""{many} files of {small} MiB and one of {large:,} MiB at once, in chunks of 8 MiB: {equal} of
{len(files)} are what was sent."""
    columns = ("process", "idle, MiB", "grew by at most, MiB", "allowed, MiB", "CPU, s/GB")
    result = PartResult(sections=[Section("A crowd of uploads", text, columns, rows)])
    if equal < len(files):
        result.failures.append(f"crowd: {len(files) - equal} of {len(files)} files are not what was sent")
    return result
