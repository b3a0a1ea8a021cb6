"""The inspection of a hostile file ends soon and does no harm."""

import os
import struct
import sys
import zlib
from io import BytesIO
from pathlib import Path
from types import FrameType

import pytest

from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.pe_builder import make_zip, program
from tests.support.tables import each
from tests.support.wait import until
from upload_service.inspection import process
from upload_service.inspection.formats import archives, inspect_file
from upload_service.inspection.model import Findings, Reason
from upload_service.inspection.process import Unreadable, read_installer

IDENTITY = '<Package><Identity Name="{name}" Publisher="CN=T" Version="1"/></Package>'
MEGABYTE = 1 << 20


async def read(content: bytes, folder: Path, *, size: int | None = None) -> Findings | Reason:
    """The result of an inspection process; a longer file has a hole at its end."""
    path = folder / "installer"
    path.write_bytes(content)
    if size:
        os.truncate(path, size)
    with path.open("rb") as file:
        try:
            return await read_installer(file, ".exe")
        except Unreadable as error:
            return error.reason


def bomb(name: str, megabytes: int) -> bytes:
    """An archive with one file whose header declares a small size."""
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = block.compress(bytes(MEGABYTE)) + block.flush(zlib.Z_FULL_FLUSH)
    content = make_zip({name: b"x"})
    position = 30 + len(name)
    packed = zeros * megabytes
    directory = bytearray(content[content.index(b"PK\x01\x02") :])
    struct.pack_into("<I", directory, 20, len(packed))
    end = directory.index(b"PK\x05\x06")
    struct.pack_into("<I", directory, end + 16, position + len(packed))
    return content[:position] + packed + bytes(directory)


def looping_msi(sector: int) -> bytes:
    """A database with a sector that points to itself."""
    content = bytearray(MACHINE_MSI)
    table = 512 * (1 + struct.unpack_from("<I", content, 76)[0])
    struct.pack_into("<I", content, table + 4 * sector, sector)
    return bytes(content)


async def test_a_zip_bomb_is_unpacked_only_up_to_the_manifest_limit(tmp_path: Path) -> None:
    assert await read(bomb("AppxManifest.xml", 1000), tmp_path) is Reason.DAMAGED
    findings = await read(bomb("setup.exe", 1000), tmp_path)  # A program in an archive is not unpacked.
    assert isinstance(findings, Findings)
    assert [file.path for file in findings.nested] == ["setup.exe"]


async def test_a_manifest_that_declares_entities_is_refused(tmp_path: Path) -> None:
    manifest = '<!DOCTYPE Package [<!ENTITY n "grown">]>' + IDENTITY.format(name="&n;")
    assert await read(make_zip({"AppxManifest.xml": manifest}), tmp_path) is Reason.DAMAGED


def manifest_of_references(number: int) -> bytes:
    """A package whose name has this many character references."""
    name = "&#65;" * number
    identity = '<Identity Name="T" Publisher="CN=T" Version="1"/>'
    properties = f"<Properties><DisplayName>{name}</DisplayName></Properties>"
    return make_zip({"AppxManifest.xml": f"<Package>{identity}{properties}</Package>"})


def calls_of_reading(content: bytes) -> int:
    """Count the function calls of an inspection, including libraries."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        inspect_file(BytesIO(content), ".msix")
    finally:
        sys.setprofile(None)
    return calls


def test_many_character_references_need_no_more_calls_than_few() -> None:
    hostile = manifest_of_references(800_000)
    assert len(hostile) < 8000
    assert calls_of_reading(hostile) < calls_of_reading(manifest_of_references(4)) + 2000


def test_a_text_of_a_manifest_is_read_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def name_read(text: str) -> str:
        texts.append(text)
        return text

    monkeypatch.setattr(archives, "_shown", name_read)
    inspect_file(BytesIO(manifest_of_references(800_000)), ".msix")
    assert texts == ["A" * 1024, ""]


@each(("number", "name"), [(256, "A" * 256), (257, "")])
def test_a_name_is_decoded_or_omitted_but_not_truncated(number: int, name: str) -> None:
    assert inspect_file(BytesIO(manifest_of_references(number)), ".msix").product_name == name


async def test_a_deeply_nested_manifest_is_read(tmp_path: Path) -> None:
    manifest = "<Package>" + "<a>" * 100_000 + "</a>" * 100_000 + "</Package>"
    findings = await read(make_zip({"AppxManifest.xml": manifest}), tmp_path)
    assert isinstance(findings, Findings)
    assert findings.package_family_name == ""


async def test_a_program_of_65535_sections_is_read(tmp_path: Path) -> None:
    findings = await read(program(section_count=65535, overlay=os.urandom(3 * MEGABYTE)), tmp_path)
    assert isinstance(findings, Findings)


@pytest.mark.parametrize("sector", range(4))
async def test_the_inspection_of_circular_msi_sectors_ends(sector: int, tmp_path: Path) -> None:
    findings = await read(looping_msi(sector), tmp_path)
    assert findings is Reason.DAMAGED or isinstance(findings, Findings)


@pytest.mark.parametrize("head", [program(), MACHINE_MSI, b"PK\x03\x04"], ids=["program", "msi", "zip"])
async def test_a_sparse_file_of_4_gib_is_inspected(head: bytes, tmp_path: Path) -> None:
    findings = await read(head, tmp_path, size=4 << 30)
    assert findings in {Reason.DAMAGED, Reason.TOO_MUCH_MEMORY} or isinstance(findings, Findings)


async def test_an_archive_directory_larger_than_memory_fails_only_the_inspection(tmp_path: Path) -> None:
    path, size = tmp_path / "zip", 3 << 30
    with path.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(size)
        file.write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, size - 4, 4, 0))
    with path.open("rb") as file, pytest.raises(Unreadable) as failed:
        await read_installer(file, ".zip")
    assert failed.value.reason is Reason.TOO_MUCH_MEMORY


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A shell script that runs instead of Python."""
    path = tmp_path / "python"
    path.touch(mode=0o700)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setattr(process, "WALL_TIME", 0.5)
    return path


async def read_by(program: Path, script: str, folder: Path) -> Findings | Reason:
    program.write_text(f"#!/bin/sh\n{script}\n")
    return await read(b"MZ", folder)


async def test_an_endless_inspection_is_killed_with_its_children(stand_in: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    assert await read_by(stand_in, f"sleep 99 & echo $$ $! > {started}; wait", tmp_path) is Reason.TOO_LONG

    async def gone() -> bool:
        # The adopting process may need a moment.
        states = [Path("/proc", number, "stat") for number in started.read_text().split()]
        return all(not state.exists() or state.read_text().split()[2] == "Z" for state in states)

    await until(gone)


@pytest.mark.parametrize(
    "script",
    ["yes", "echo '{}'", "echo '[]'", "echo nothing", "printf '\\377'", "exit 1", "kill -SEGV $$", "true"],
)
async def test_invalid_output_counts_as_an_early_end(script: str, stand_in: Path, tmp_path: Path) -> None:
    assert await read_by(stand_in, script, tmp_path) is Reason.ENDED_EARLY


@pytest.mark.parametrize(
    ("script", "reason"),
    [("kill -XCPU $$", Reason.TOO_LONG), ("exit 3", Reason.DAMAGED), ("exit 4", Reason.TOO_MUCH_MEMORY)],
)
async def test_the_exit_status_gives_the_reason_of_a_failure(
    script: str, reason: Reason, stand_in: Path, tmp_path: Path
) -> None:
    assert await read_by(stand_in, script, tmp_path) is reason


async def test_a_file_without_an_installer_magic_starts_no_process(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text("#!/bin/sh\nexit 1\n")
    assert await read(b"random bytes", tmp_path) == Findings()


async def test_an_inspection_process_inherits_no_settings(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERNAL_KEY", "a secret")
    output = tmp_path / "told"
    await read_by(stand_in, f"env > {output}", tmp_path)
    names = {line.partition("=")[0] for line in output.read_text().splitlines()}
    assert names <= {"PYTHONPATH", "PWD", "SHLVL", "_", "OLDPWD"}


async def test_an_inspection_process_has_only_its_file_and_output_open(stand_in: Path, tmp_path: Path) -> None:
    output = tmp_path / "told"
    with (tmp_path / "another").open("wb") as other:
        os.set_inheritable(other.fileno(), True)
        await read_by(stand_in, f"readlink /proc/$$/fd/* > {output}", tmp_path)
    assert "another" not in output.read_text()
    assert "installer" in output.read_text()
