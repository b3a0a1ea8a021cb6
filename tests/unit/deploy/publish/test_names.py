"""Facts that `pkgrepo publish` derives from file names, and the ids of its transfers."""

from pathlib import Path

from catalog_service.model.enumerations import Architecture, FileType, Switch
from deploy.publish import files, model
from deploy.publish.model import Installer
from tests.support.samples.openapi import DOCUMENT
from tests.support.tables import each
from upload_service.model import SUFFIXES, parse_file_id


@each(
    ("name", "architecture"),
    [
        ("setup.exe", "x64"),
        ("app-x64.msi", "x64"),
        ("app_amd64.msi", "x64"),
        ("app-x86_64.msi", "x64"),
        ("app-win32-x64.zip", "x64"),
        ("app-x86.msi", "x86"),
        ("App (x86).exe", "x86"),
        ("app.win32.msi", "x86"),
        ("Setup-32bit.exe", "x86"),
        ("app-i686.exe", "x86"),
        ("app-arm64.msix", "arm64"),
        ("APP-ARM64.MSIX", "arm64"),
        ("app-aarch64.zip", "arm64"),
        ("app-arm.appx", "arm"),
        ("charmap.exe", "x64"),
        ("prefix86.exe", "x64"),
    ],
)
def test_the_file_name_gives_the_architecture(name: str, architecture: str) -> None:
    assert files.architecture_of(Path("folder-arm64") / name) == architecture


@each(
    ("name", "file_type"),
    [
        ("setup.exe", "EXE"),
        ("Setup.MSI", "MSI"),
        ("app.msix", "MSIX"),
        ("app.msixbundle", "MSIX"),
        ("app.appxbundle", "APPX"),
        ("app.zip", "ZIP"),
        ("app.OTF", "FONT"),
        ("app.tar.gz", None),
        ("app", None),
    ],
)
def test_the_suffix_gives_the_type(name: str, file_type: str | None) -> None:
    assert files.file_type_of(Path(name)) == file_type


def test_the_command_sends_the_suffixes_that_the_server_stores() -> None:
    suffixes = {files.suffix_of(Path(f"app{suffix}")) for suffix in (*SUFFIXES, ".txt", '.ex"e', ".EXE")}
    assert suffixes == set(SUFFIXES)


def test_the_command_accepts_the_switches_of_the_interface() -> None:
    described = [name for name in DOCUMENT["components"]["schemas"]["VersionFields"]["properties"] if "switch_" in name]
    switches = [f"{name.removeprefix('switch_')}=/x" for name in described]
    assert files.switches(switches) == [(name, "/x") for name in described]
    assert len(described) == len(Switch)


def test_the_ids_of_a_transfer_are_stable_and_unique() -> None:
    def ids(sha256: str, version: str = "1", package: str = "Acme.App", name: str = "a.exe") -> list[str]:
        installer = Installer(Path(name), package, version, Architecture.X64, FileType.EXE)
        return list(installer.file_ids(sha256))

    first = ids("ab" * 32)
    assert first == ids("ab" * 32, name="elsewhere/a.exe")
    others = [*ids("cd" * 32), *ids("ab" * 32, "2"), *ids("ab" * 32, package="Acme.Other")]
    assert len({*first, *others}) == 4 * model.GENERATIONS
    assert [parse_file_id([file_id]) for file_id in first] == first
