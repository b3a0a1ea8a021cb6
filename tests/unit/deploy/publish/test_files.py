"""The options of `pkgrepo publish`, the file that it sends, and the facts that it reads from file names."""

import hashlib
import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from catalog_service.model.enumerations import Architecture, FileType, Switch
from common.settings import BadSetting
from deploy.cli.main import app
from deploy.publish import files, model
from deploy.publish.files import BLOCK, InstallerOptions, installers, open_file, package_dependencies, switches
from deploy.publish.model import FileChanged, FileUnusable, Installer
from deploy.terminal import show_progress
from tests.support.samples.openapi import DOCUMENT
from tests.support.tables import each
from upload_service.model import SUFFIXES, parse_file_id

GUIDE = (Path(__file__).parents[4] / "deploy" / "docs" / "publishing.md").read_text(encoding="utf-8")
FILES = [Path("app-x64.exe"), Path("app-arm64.msi")]
TWINS = [Path("a.exe"), Path("b.exe")]


def test_a_single_value_applies_to_all_files() -> None:
    options_of_files = installers(FILES, "Acme.App", InstallerOptions(["1"], channel="beta"))
    assert [(row.path, row.version, row.architecture, row.file_type, row.channel) for row in options_of_files] == [
        (FILES[0], "1", "x64", "EXE", "beta"),
        (FILES[1], "1", "arm64", "MSI", "beta"),
    ]


def test_values_for_each_file_follow_the_order_of_files() -> None:
    per_file = InstallerOptions(
        ["1", "2"], [Architecture.X86, Architecture.ARM], [FileType.INNO, FileType.WIX], ["{A}", "{B}"]
    )
    options_of_files = installers(FILES, "Acme.App", per_file)
    assert [(row.version, row.architecture, row.file_type, dict(row.more)) for row in options_of_files] == [
        ("1", "x86", "INNO", {"productcode": "{A}"}),
        ("2", "arm", "WIX", {"productcode": "{B}"}),
    ]


@each(
    ("files", "options", "reason"),
    [
        (FILES, InstallerOptions(["1", "2", "3"]), "--version: give it once, or once for each of the 2 files"),
        (FILES, InstallerOptions(["1"], product_codes=["{A}", "{B}", "{C}"]), "--product-code"),
        (FILES, InstallerOptions([""]), "--version: must not be empty"),
        (TWINS, InstallerOptions(["1"]), "a.exe and b.exe would be the same version, 1 for x64"),
        ([Path("setup.run")], InstallerOptions(["1"]), "--type: the suffix of setup.run is not one of an installer"),
    ],
)
def test_values_that_do_not_fit_the_files_are_refused(
    files: list[Path], options: InstallerOptions, reason: str
) -> None:
    with pytest.raises(BadSetting, match=re.escape(reason)):
        installers(files, "Acme.App", options)


def test_switches_have_the_names_of_the_interface() -> None:
    assert switches(["silent=/S", "silent-with-progress=/P=1", "InstallLocation="]) == [
        ("switch_Silent", "/S"),
        ("switch_SilentWithProgress", "/P=1"),
        ("switch_InstallLocation", ""),
    ]
    for wrong in ("silent", "quiet=/S", "=/S"):
        with pytest.raises(BadSetting, match="one of Silent, "):
            switches([wrong])


def test_package_dependencies_have_their_minimum_versions() -> None:
    assert package_dependencies(["Acme.Runtime=2.0", "Acme.Fonts"]) == [
        ("dep_pkg_identifier", "Acme.Runtime"),
        ("dep_pkg_min_version", "2.0"),
        ("dep_pkg_identifier", "Acme.Fonts"),
        ("dep_pkg_min_version", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "environment", "reason"),
    [
        ((), {"PKGREPO_USER": "admin"}, "set PKGREPO_TOKEN, or PKGREPO_USER and PKGREPO_PASSWORD"),
        ((), {"PKGREPO_TOKEN": "t", "PKGREPO_USER": "a"}, "set only one of the two"),
        ((), {"PKGREPO_TOKEN": "t", "PKGREPO_PASSWORD": "p"}, "set only one of the two"),
        (("--url", "packages.example.com/acme"), {"PKGREPO_TOKEN": "t"}, "--url: must be https://host/tenant"),
        (("--url", "https://packages.example.com/"), {"PKGREPO_TOKEN": "t"}, "--url: must be https://host/tenant"),
        (("--url", "https://a:b@packages.example.com/acme"), {"PKGREPO_TOKEN": "t"}, "must not contain credentials"),
        (("--package-name", "App"), {"PKGREPO_TOKEN": "t"}, "--package-name and --publisher: give both"),
    ],
)
def test_missing_options_are_reported_before_anything_is_sent(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], reason: str
) -> None:
    file = tmp_path / "setup.exe"
    file.write_bytes(b"MZ")
    nothing = dict.fromkeys(("PKGREPO_USER", "PKGREPO_PASSWORD", "PKGREPO_PASSWORD_FILE", "PKGREPO_TOKEN"), "")
    result = CliRunner().invoke(
        app,
        ["publish", str(file), "--package", "Acme.App", "--version", "1", *arguments],
        env={**nothing, "PKGREPO_URL": "https://packages.example.com/acme", **environment},
    )
    assert isinstance(result.exception, BadSetting)
    assert reason in str(result.exception)


def test_the_publishing_guide_names_existing_options() -> None:
    section = GUIDE.partition("## Publish from a pipeline")[2].partition("\n## ")[0]
    help_text = CliRunner().invoke(app, ["publish", "--help"], env={"COLUMNS": "300"}).output
    option = r"(?<![\w-])--[a-z][a-z-]*"
    guide_options = set(re.findall(option, section))
    assert guide_options
    assert guide_options <= set(re.findall(option, re.sub(r"\x1b\[[0-9;]*m", "", help_text)))


async def test_a_file_is_digested_in_pieces(tmp_path: Path) -> None:
    path, sizes_reported = tmp_path / "setup.exe", list[int]()
    path.write_bytes(os.urandom(BLOCK + 1))
    async with open_file(path) as file:
        assert await file.sha256(sizes_reported.append) == hashlib.sha256(path.read_bytes()).hexdigest()
        assert await file.read(BLOCK, 1) == path.read_bytes()[-1:]
    assert sizes_reported == [BLOCK, BLOCK + 1]


@pytest.mark.parametrize("content", [b"longer than before", b"short", b"as long as it was"])
async def test_a_changed_file_returns_no_more_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "setup.exe"
    path.write_bytes(b"x" * len(b"as long as it was"))
    os.utime(path, (1, 1))
    async with open_file(path) as file:
        path.write_bytes(content)
        with pytest.raises(FileChanged):
            await file.read(0, 4)


@pytest.mark.parametrize("name", ["pipe.exe", "zero.exe", "folder.exe"])
async def test_pipes_devices_and_folders_are_refused_without_blocking(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.exe")
    (tmp_path / "zero.exe").symlink_to("/dev/zero")
    (tmp_path / "folder.exe").mkdir()
    with pytest.raises(FileUnusable, match="is no regular file"):
        async with open_file(tmp_path / name):
            pass


async def test_empty_and_missing_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.exe").touch()
    for name in ("empty.exe", "missing.exe"):
        with pytest.raises(FileUnusable, match=name):
            async with open_file(tmp_path / name):
                pass


def test_a_log_gets_a_line_for_each_tenth() -> None:
    written = io.StringIO()
    with show_progress(Console(file=written, width=200)) as rows, rows("[a].exe") as row:
        row.start("reading", 1000)
        row.update(1000)
        row.start("sending", 1000, 250)
        for done in (260, 299, 300, 310, 550, 540, 560, 1000):
            row.update(done)
    lines = ["reading 1.0 kB", "100 %", "sending 1.0 kB, from byte 250 on", "30 %", "55 %", "100 %"]
    assert written.getvalue().splitlines() == [f"[a].exe: {line}" for line in lines]


def test_a_terminal_gets_a_bar_for_each_file() -> None:
    written = io.StringIO()
    console = Console(file=written, width=120, force_terminal=True, color_system=None)
    with show_progress(console) as rows, rows("[a].exe") as first, rows("b.msi") as second:
        first.start("sending", 2000, 500)
        second.start("reading", 1000)
        second.update(1000)
    *_, last = written.getvalue().split("[a].exe")
    assert "sending" in last
    assert "0.5/2.0 kB" in last
    assert "reading" in last.partition("b.msi")[2]
    assert "1.0/1.0 kB" in last


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
