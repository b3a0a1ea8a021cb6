"""A large installer through the gateway and back: is it the same, and what does it cost?

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

from tests.bench.processes import Bench, running

MIB = 1 << 20
CHUNK = 8 * MIB
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


async def in_chunks(bench: Bench, installer: Path) -> str:
    """Send the file in chunks and make it a version; the version's UID."""
    total, body = installer.stat().st_size, {}
    with installer.open("rb") as file:
        for start in range(0, total, CHUNK):
            content = file.read(CHUNK)
            form = FormData()
            form.add_field("chunk", io.BytesIO(content), filename="chunk")
            headers = {
                "X-File-ID": "bench",
                "Content-Range": f"bytes {start}-{start + len(content) - 1}/{total}",
            }
            url = f"{bench.base_url}/upload_package_version"
            async with bench.session.post(url, data=form, headers=headers) as answer:
                body = await answer.json()
    fields = {**FIELDS, "package_version": "chunks", "server_filename": body["server_filename"]}
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
    table = Table("Transfer", "Seconds", "CPU s/GiB, gateway", "CPU s/GiB, upload_service")

    async def measured(label: str, transfer: Awaitable[str]) -> str:
        before = time.monotonic(), bench.cpu("gateway"), bench.cpu("upload_service")
        result = await transfer
        spent = time.monotonic() - before[0]
        costs = [(bench.cpu(name) - was) * 1024 / size for name, was in zip(MEASURED, before[1:], strict=True)]
        table.add_row(label, f"{spent:.1f}", *(f"{cost:.2f}" for cost in costs))
        return result

    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        expected = make_installer(folder / "installer", size)
        async with running(folder) as bench:
            package = {"package_id": "Bench", "package_name": "Bench", "package_publisher": "Bench"}
            async with bench.session.post(f"{bench.base_url}/add_package", data=package):
                pass
            chunks = await measured("up, 8 MiB chunks", in_chunks(bench, folder / "installer"))
            one_call = await measured("up, one call", in_one_call(bench, folder / "installer"))
            equal = [
                await measured("down", back(bench, chunks)) == expected,
                await measured("down", back(bench, one_call)) == expected,
            ]
            memory = ", ".join(f"{name} {bench.largest_memory(name) / MIB:.0f} MiB" for name in MEASURED)
    console = Console()
    console.print(f"{size} MiB through the gateway, SHA-256 {'equal' if all(equal) else 'DIFFERENT'}")
    console.print(table)
    console.print(f"Largest memory: {memory}")
    return all(equal)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)) else 1)
