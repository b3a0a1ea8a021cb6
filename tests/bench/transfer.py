"""A large installer through the gateway and back: is it the same, and what does it cost, next to what it must?

python -m tests.bench.transfer [MiB]
"""

import asyncio
import hashlib
import io
import os
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import FormData
from rich.console import Console
from rich.table import Table
from yarl import URL

from tests.bench.limits import limits
from tests.bench.processes import Bench, running

MIB = 1 << 20
MEASURED = ("gateway", "upload_service")
FIELDS = {"file_architect": "x64", "file_type": "EXE", "file_scope": "machine"}


def make_installer(path: Path, size: int) -> str:
    """Write `size` MiB of which no two are alike; their SHA-256."""
    random, digest = os.urandom(MIB), hashlib.sha256()
    with path.open("wb") as file:
        for number in range(size):
            block = number.to_bytes(8, "big") + random[8:]
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


async def in_chunks(bench: Bench, installer: Path, chunk: int) -> str:
    """Send the file in chunks of so many MiB and make it a version; the version's UID."""
    total, body = installer.stat().st_size, {}
    with installer.open("rb") as file:
        for start in range(0, total, chunk * MIB):
            content = file.read(chunk * MIB)
            form = FormData()
            form.add_field("chunk", io.BytesIO(content), filename="chunk")
            headers = {
                "X-File-ID": f"bench-{chunk}",
                "Content-Range": f"bytes {start}-{start + len(content) - 1}/{total}",
            }
            url = f"{bench.base_url}/upload_package_version"
            async with bench.session.post(url, data=form, headers=headers) as answer:
                body = await answer.json()
    fields = {**FIELDS, "package_version": f"{chunk} MiB", "server_filename": body["server_filename"]}
    async with bench.session.post(f"{bench.base_url}/add_package_version/Bench", data=fields) as answer:
        return str((await answer.json())["UID"])


async def in_one_call(bench: Bench, installer: Path) -> str:
    """Send the file with the version's fields; the version's UID."""
    with installer.open("rb") as file:
        form = FormData({**FIELDS, "package_version": "one call"})
        form.add_field("file", file, filename="setup.exe")
        async with bench.session.post(f"{bench.base_url}/add_package_version/Bench", data=form) as answer:
            return str((await answer.json())["UID"])


async def back(bench: Bench, uid: str) -> str:
    """Fetch a version's installer; the SHA-256 of what came."""
    async with bench.session.get(f"{bench.base_url}/get_specific_package_version/{uid}") as answer:
        url = URL((await answer.json())["INSTALLER_URL"], encoded=True)
    digest = hashlib.sha256()
    async with bench.session.get(url) as answer:
        async for block in answer.content.iter_any():
            digest.update(block)
    return digest.hexdigest()


async def main(size: int) -> bool:
    """Measure `size` MiB; whether what came back was what was sent."""
    table = Table("Transfer", "Seconds", *(f"{name}, CPU s/GiB" for name in MEASURED), "Both", "Budget", "Of it")
    found: list[dict[str, float]] = []

    async def measured(label: str, transfer: Awaitable[str], budget: float | None = None) -> str:
        found.append(limits(folder))
        before = time.monotonic(), bench.cpu("gateway"), bench.cpu("upload_service")
        result = await transfer
        spent = time.monotonic() - before[0]
        costs = [(bench.cpu(name) - was) * 1024 / size for name, was in zip(MEASURED, before[1:], strict=True)]
        of_it = ["", ""] if budget is None else [f"{budget:.1f}", f"{sum(costs) / budget:.0%}"]
        table.add_row(label, f"{spent:.1f}", *(f"{cost:.2f}" for cost in (*costs, sum(costs))), *of_it)
        return result

    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        installer = folder / "installer"
        expected = make_installer(installer, size)
        async with running(folder) as bench:
            package = {"package_id": "Bench", "package_name": "Bench", "package_publisher": "Bench"}
            async with bench.session.post(f"{bench.base_url}/add_package", data=package):
                pass
            uids = [
                await measured("up, 8 MiB chunks", in_chunks(bench, installer, 8), budget=3.0),
                await measured("up, 1 MiB chunks", in_chunks(bench, installer, 1)),
                await measured("up, one call", in_one_call(bench, installer), budget=3.0),
            ]
            equal = [await measured("down", back(bench, uid)) == expected for uid in uids]
            memory = ", ".join(f"{name} {bench.largest_memory(name) / MIB:.0f} MiB" for name in MEASURED)
    machine = Table("What this machine needs at least, between the transfers", "CPU s/GiB")
    for part in found[0]:
        costs = [limit[part] for limit in found]
        machine.add_row(part, f"{min(costs):.2f} to {max(costs):.2f}")
    console = Console(width=110)
    console.print(f"{size} MiB through the gateway, SHA-256 {'equal' if all(equal) else 'DIFFERENT'}")
    console.print(table, machine)
    console.print(f"Largest memory: {memory}")
    return all(equal)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)) else 1)
