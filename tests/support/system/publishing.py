"""Publishing of packages and versions, for system tests."""

import hashlib
import io
import os
from dataclasses import dataclass
from uuid import uuid4

from aiohttp import FormData
from yarl import URL

from tests.support.api import Answer
from tests.support.system.services import Api
from tests.support.wait import until

INSTALLER = {"file_architect": "x64", "file_type": "EXE", "file_scope": "machine"}


@dataclass(frozen=True)
class Published:
    """A version and the bytes of its installer."""

    package_id: str
    uid: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def package_id() -> str:
    return f"Acme.{uuid4().hex[:10]}"


async def add_package(api: Api, name: str, **fields: str) -> None:
    form = {
        "package_id": name,
        "package_name": "Roadrunner Trap",
        "package_publisher": "Acme",
        "package_description": "",
        **fields,
    }
    answer = await api.call("POST", "add_package", data=form)
    assert (answer.status, answer.body) == (200, {"Message": "Package was added successfully!"})


async def send_chunk(api: Api, file_id: str, content: bytes, start: int, end: int) -> Answer:
    """Send the bytes from `start` up to but not including `end`."""
    form = FormData()
    form.add_field("chunk", io.BytesIO(content[start:end]), filename="blob")
    headers = {"X-File-ID": file_id, "Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}
    return await api.call("POST", "upload_package_version", data=form, headers=headers)


async def upload(api: Api, content: bytes, *, chunk: int = 1 << 20) -> str:
    """Upload a file in chunks. Returns its server filename."""
    file_id, answer = uuid4().hex, None
    for start in range(0, len(content), chunk):
        answer = await send_chunk(api, file_id, content, start, min(start + chunk, len(content)))
        assert answer.status == 200, answer.body
    assert answer is not None
    assert answer.body["complete"]
    return str(answer.body["server_filename"])


async def upload_listed(api: Api, content: bytes) -> str:
    """Upload a file, and wait until the catalog lists it. Returns its server filename."""
    name = await upload(api, content)

    async def is_listed() -> bool:
        return name in str((await api.call("GET", "get_finished_uploads")).body)

    await until(is_listed)
    return name


async def wait_for_inspection(api: Api, server_filename: str) -> None:
    """Wait for the end of a file's inspection, which changes what the service tells of the file."""

    async def is_inspected() -> bool:
        return bool((await api.call("GET", "inspect_upload", server_filename)).body["state"] != "waiting")

    await until(is_inspected)


async def publish(
    api: Api, name: str, version: str = "1.0", *, content: bytes | None = None, **fields: str
) -> Published:
    """Add a version in two steps."""
    content = os.urandom(1000) if content is None else content
    form = {**INSTALLER, "package_version": version, "server_filename": await upload(api, content), **fields}
    answer = await api.call("POST", "add_package_version", name, data=form)
    assert answer.status == 201, answer.body
    return Published(name, answer.body["UID"], content)


async def publish_in_one_call(api: Api, name: str, version: str = "1.0", *, content: bytes, **fields: str) -> Published:
    """Add a version with its installer in the same form."""
    form = FormData({**INSTALLER, "package_version": version, **fields})
    form.add_field("file", io.BytesIO(content), filename="setup.exe")
    answer = await api.call("POST", "add_package_version", name, data=form)
    assert answer.status == 201, answer.body
    return Published(name, answer.body["UID"], content)


async def version_of(api: Api, published: Published) -> dict[str, str]:
    answer = await api.call("GET", "get_specific_package_version", published.uid)
    assert answer.status == 200
    version: dict[str, str] = answer.body
    return version


async def download(api: Api, url: str) -> bytes:
    """Download an installer without a token, as a package client does."""
    async with api.session.get(URL(url, encoded=True)) as response:
        assert response.status == 200
        return await response.read()


async def catalog(api: Api, **request: object) -> dict[str, dict[str, object]]:
    """The packages an API sees, by id."""
    answer = await api.call("POST", "get_packages", **request)
    assert answer.status == 200, answer.body
    return {package["PACKAGE_ID"]: package for package in answer.body}
