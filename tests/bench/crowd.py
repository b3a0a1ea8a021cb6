"""Fifty uploads of 64 MiB and one of 2 GiB at once: is each file what was sent, and how much memory do they need?

python -m tests.bench.crowd [uploads]
"""

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.bench.processes import Bench, running

MIB = 1 << 20
CHUNK = 8 * MIB
ALLOWED = {"gateway": 64 * MIB, "upload_service": 150 * MIB}  # bytes that each may grow by
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

    async def send(self, bench: Bench) -> None:
        """Send all chunks, one after the other."""
        for start in range(0, self.size, CHUNK):
            headers = {
                "X-File-ID": self.name,
                "Content-Range": f"bytes {start}-{start + CHUNK - 1}/{self.size}",
                "Content-Type": "multipart/form-data; boundary=bench",
                "Content-Length": str(len(HEAD) + CHUNK + len(TAIL)),
            }
            url = f"{bench.base_url}/upload_package_version"
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

    def is_whole(self, installers: Path) -> bool:
        """Whether the file that is kept has the SHA-256 of what was sent."""
        with (installers / "bench" / self.server_filename).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.digest.hexdigest()


async def main(uploads: int) -> bool:
    """Send them all; whether all arrived, in the memory allowed."""
    files = [Sent("large", 2048 * MIB), *(Sent(f"small-{number}", 64 * MIB) for number in range(uploads))]
    table = Table("Process", "Idle, MiB", "Grew by at most, MiB", "Allowed, MiB", "CPU s/GiB")
    amount = sum(file.size for file in files) / (1 << 30)
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        async with running(Path(name)) as bench:
            before = {service: (bench.memory(service), bench.cpu(service)) for service in ALLOWED}
            started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(file.send(bench))
            spent = time.monotonic() - started
            growth = {service: bench.largest_memory(service) - idle for service, (idle, _) in before.items()}
            for service, (idle, cpu) in before.items():
                numbers = idle / MIB, growth[service] / MIB, ALLOWED[service] / MIB
                cost = (bench.cpu(service) - cpu) / amount
                table.add_row(service, *(f"{number:.0f}" for number in numbers), f"{cost:.2f}")
            equal = sum(await asyncio.gather(*(asyncio.to_thread(file.is_whole, bench.installers) for file in files)))
    console = Console()
    console.print(f"{len(files)} uploads at once, {amount:.1f} GiB in {spent:.0f} s; {equal} SHA-256 equal")
    console.print(table)
    return equal == len(files) and all(growth[service] <= allowed for service, allowed in ALLOWED.items())


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)) else 1)
