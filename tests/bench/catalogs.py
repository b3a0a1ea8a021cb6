"""A tenant with a catalog, made through the interface."""

import asyncio
import io
import random
from collections.abc import AsyncIterator

from aiohttp import FormData
from PIL import Image

from tests.bench.processes import Bench

AT_ONCE = 16
CHANNELS = ("stable", "beta", "nightly")
INSTALLER = {"file_architect": "x64", "file_type": "MSI", "file_scope": "machine"}


async def seed(bench: Bench, packages: int) -> None:
    """Add packages with a logo of about 3 KB and three versions each: `Bench.000000` and so on."""
    names = iter([f"Bench.{number:06}" for number in range(packages)])

    async def administrator() -> None:
        for name in names:
            await _add(bench, name)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(administrator())


async def _add(bench: Bench, package_id: str) -> None:
    form = FormData(
        {
            "package_id": package_id,
            "package_name": f"The program {package_id}",
            "package_publisher": "Example Ltd.",
            "package_description": "It does what programs of its kind do. " * 5,
        }
    )
    form.add_field("Logo", _logo(package_id), filename="logo.png", content_type="image/png")
    async with bench.session.post(f"{bench.base_url}/add_package", data=form):
        pass
    async for number, server_filename in _uploads(bench, package_id):
        fields = {
            **INSTALLER,
            "package_version": f"1.{number}.0",
            "channel": CHANNELS[number],
            "server_filename": server_filename,
        }
        async with bench.session.post(f"{bench.base_url}/add_package_version/{package_id}", data=fields):
            pass


async def _uploads(bench: Bench, package_id: str) -> AsyncIterator[tuple[int, str]]:
    for number in range(len(CHANNELS)):
        headers = {"X-File-ID": f"{package_id}-{number}", "Content-Range": "bytes 0-9/10"}
        form = FormData()
        form.add_field("chunk", io.BytesIO(b"0123456789"), filename="chunk")
        async with bench.session.post(f"{bench.base_url}/upload_package_version", data=form, headers=headers) as answer:
            yield number, (await answer.json())["server_filename"]


def _logo(package_id: str) -> bytes:
    """A picture of its own for each package; noise, which no compression makes small."""
    noise, picture = random.Random(package_id), io.BytesIO()  # noqa: S311  a picture, not a secret
    Image.frombytes("RGB", (32, 32), noise.randbytes(32 * 32 * 3)).save(picture, "PNG")
    return picture.getvalue()
