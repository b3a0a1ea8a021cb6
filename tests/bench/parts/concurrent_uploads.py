"""Many uploads and a large one at once: is each file what was sent, and how much memory do they need?"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.parts.transfer import per_gb
from tests.bench.report import Found, Section, number
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Account, Bench, costs, running

CHUNK = 8 * MIB
ALLOWED = {"gateway": 64, "upload_service": 150}  # MiB that each may grow by
HEAD = b'--bench\r\nContent-Disposition: form-data; name="chunk"; filename="setup.exe"\r\n\r\n'
TAIL = b"\r\n--bench--\r\n"


@dataclass
class Sent:
    """A file that is made while it is sent: no two blocks are alike, and none is kept."""

    name: str
    size: int
    random: bytes = field(default_factory=lambda: os.urandom(MIB - 32))
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    server_filename: str = ""

    async def send(self, bench: Bench, account: Account) -> None:
        """Send all chunks, one after the other."""
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
        """Whether the file that is kept has the SHA-256 of what was sent."""
        with (folder / self.server_filename).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.digest.hexdigest()


async def measure(run: Run) -> Found:
    """Send them all; whether all arrived, in the memory allowed."""
    many, small, large = run.scale.crowd
    files = [Sent("large", large * MIB), *(Sent(f"small-{number}", small * MIB) for number in range(many))]
    amount = sum(file.size for file in files)
    async with running(run.stores) as bench:
        account = await bench.account("bench-crowd")
        idle = {name: process.memory for name, process in bench.processes.items()}

        async def send_all() -> None:
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(file.send(bench, account))

        spent, _ = await costs(bench.processes, send_all())
        growth = {name: (bench.processes[name].largest_memory - idle[name]) / MIB for name in ALLOWED}
    kept = run.stores.installers / account.tenant_id
    equal = sum(await asyncio.gather(*(asyncio.to_thread(file.is_whole, kept) for file in files)))
    shutil.rmtree(kept)
    each = per_gb(spent, amount)
    rows = [
        (name, number(idle[name] / MIB), number(growth[name]), str(allowed), number(each[name]))
        for name, allowed in ALLOWED.items()
    ]
    text = f"""{many} files of {small} MiB and one of {large:,} MiB at once, in chunks of 8 MiB: {equal} of
{len(files)} are what was sent."""
    columns = ("process", "idle, MiB", "grew by at most, MiB", "allowed, MiB", "CPU, s/GB")
    found = Found(sections=[Section("A crowd of uploads", text, columns, rows)])
    if equal < len(files):
        found.failures.append(f"crowd: {len(files) - equal} of {len(files)} files are not what was sent")
    return found
