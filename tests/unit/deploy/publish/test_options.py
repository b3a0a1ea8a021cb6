"""The options of `pkgrepo publish`."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from catalog_service.model.enumerations import Architecture, FileType
from common.settings import BadSetting
from deploy.cli.main import app
from deploy.publish.files import InstallerOptions, installers, package_dependencies, switches
from tests.support.tables import each

GUIDE = (Path(__file__).parents[4] / "deploy" / "docs" / "publishing.md").read_text(encoding="utf-8")
FILES = [Path("app-x64.exe"), Path("app-arm64.msi")]
TWINS = [Path("a.exe"), Path("b.exe")]


def test_a_single_value_applies_to_all_files() -> None:
    options_of_files = installers(FILES, "Acme.App", InstallerOptions(["1"], channel="beta"))
    assert [
        (
            file_options.path,
            file_options.version,
            file_options.architecture,
            file_options.file_type,
            file_options.channel,
        )
        for file_options in options_of_files
    ] == [
        (FILES[0], "1", "x64", "EXE", "beta"),
        (FILES[1], "1", "arm64", "MSI", "beta"),
    ]


def test_values_for_each_file_follow_the_order_of_files() -> None:
    per_file = InstallerOptions(
        ["1", "2"], [Architecture.X86, Architecture.ARM], [FileType.INNO, FileType.WIX], ["{A}", "{B}"]
    )
    options_of_files = installers(FILES, "Acme.App", per_file)
    assert [
        (file_options.version, file_options.architecture, file_options.file_type, dict(file_options.more))
        for file_options in options_of_files
    ] == [
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
