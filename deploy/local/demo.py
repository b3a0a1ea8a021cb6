"""Sample packages, published through the public interface."""

import io
import ssl
import zipfile
from dataclasses import dataclass

from aiohttp import ClientResponseError, ClientSession, FormData, TCPConnector
from PIL import Image, ImageDraw, ImageFont

from deploy.operator.tenants import ADMINISTRATOR


@dataclass(frozen=True)
class Sample:
    """A package and its versions."""

    package_id: str
    name: str
    description: str
    colour: str
    versions: tuple[str, ...]


PUBLISHER = "Example Software"
SAMPLES = (
    Sample("Example.Hello", "Hello", "Says hello.", "#2f6f9f", ("1.0.0", "1.1.0", "2.0.0")),
    Sample("Example.Notes", "Notes", "Short notes, kept in plain text.", "#7a4f9f", ("0.9.1", "1.0.0")),
    Sample("Example.Clock", "Clock", "The time, in every office.", "#3f8f5f", ("2026.1", "2026.2")),
    Sample("Example.Paint", "Paint", "Draws lines and circles.", "#b0622f", ("3.4",)),
    Sample("Example.Backup", "Backup", "Copies a folder somewhere safe.", "#8f2f4f", ("10.2.1",)),
)


async def publish_samples(base_url: str, password: str, trust: ssl.SSLContext | bool = True) -> str:
    """Publish the samples into an empty catalog; returns the result as a sentence.

    Nothing is published if the administrator's first password was changed, or our own address is not allowed.
    """
    credentials = {"username": ADMINISTRATOR, "password": password}
    try:
        async with ClientSession(connector=TCPConnector(ssl=trust), raise_for_status=True) as session:
            async with session.post(f"{base_url}/login", data=credentials) as response:
                session.headers["Authorization"] = f"Bearer {(await response.json())['message']}"
            async with session.post(f"{base_url}/get_packages?include_disabled=true") as response:
                if await response.json():
                    return "The catalog has packages already, so no samples were published."
            for sample in SAMPLES:
                await _add_package(session, base_url, sample)
                for version in sample.versions:
                    await _add_version(session, base_url, sample, version)
    except ClientResponseError as error:
        return f"No samples were published: {error.status} at {error.request_info.url.path}."
    return f"{len(SAMPLES)} sample packages were published."


async def _add_package(session: ClientSession, base_url: str, sample: Sample) -> None:
    form = FormData({"package_id": sample.package_id, "package_name": sample.name, "package_publisher": PUBLISHER})
    form.add_field("package_description", sample.description)
    form.add_field("Logo", _logo(sample), filename="logo.png", content_type="image/png")
    (await session.post(f"{base_url}/add_package", data=form)).release()


async def _add_version(session: ClientSession, base_url: str, sample: Sample, version: str) -> None:
    form = FormData({"package_version": version, "file_architect": "x64", "file_scope": "user"})
    form.add_fields(("file_type", "ZIP"), ("file_type_nested", "EXE"))
    form.add_field("file_nested_path", f"{sample.name.lower()}.cmd")
    form.add_field("file", _installer(sample, version), filename=f"{sample.name}-{version}.zip")
    (await session.post(f"{base_url}/add_package_version/{sample.package_id}", data=form)).release()


def _logo(sample: Sample) -> bytes:
    image = Image.new("RGB", (128, 128), sample.colour)
    font = ImageFont.load_default(80)
    ImageDraw.Draw(image).text((64, 64), sample.name[0], fill="white", anchor="mm", font=font)
    image.save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def _installer(sample: Sample, version: str) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{sample.name.lower()}.cmd", f"@echo {sample.name} {version}\r\n")
    return file.getvalue()
