"""The forms of catalog_service: validation and the stored spelling."""

import unicodedata
from typing import Any

import pytest

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from catalog_service.model.packages import VersionNotFound
from catalog_service.model.versions import PackageDependency, PackageVersion, Switches
from catalog_service.versions.forms import new_version, package_id, version_uids
from common.errors import InvalidField, InvalidRequest
from common.http.forms import Form
from tests.support.services.catalog import version_form
from tests.support.tables import each

UID = "0a1b2c3d-0000-4000-8000-00000000000f"
ADDRESS = "https://downloads.example.com/editor.msi"
GUID = "{0A1B2C3D-0000-4000-8000-00000000000f}"


def form(**fields: Any) -> Form:
    return Form({name: (value,) if isinstance(value, str) else tuple(value) for name, value in fields.items()})


def read(**fields: Any) -> PackageVersion:
    """The version of a form with the required fields and these fields."""
    return new_version(form(**{**version_form(), "server_filename": "file.msi", **fields}), "acme.editor")


@each("text", ["acme.editor", "a", "A\u0308 b", "x" * 128, "a{b}", "...", "日本", "a-b_c+d@e#f%"])
def test_a_package_id_may_hold_most_characters(text: str) -> None:
    assert package_id(text) == unicodedata.normalize("NFC", text)


@each(
    "text",
    [
        "",
        "..",
        " a",
        "a ",
        "a/b",
        "a\\b",
        "a:b",
        "a*",
        "a|b",
        "a,b",
        "a\nb",
        "a\u202eb",
        "\ud800",
        "x" * 129,
    ],
)
def test_a_package_id_unsafe_in_files_or_paths_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^package_id: "):
        package_id(text)


@each(
    "character",
    [
        *("\u00ad", "\u115f", "\u200b", "\u200d", "\u2060", "\u2065", "\u2800", "\u3164", "\ufe0f", "\ufeff", "\ufff0"),
        *("\U000e0002", "\U000e0041", "\U000e0100", "\U000e0fff"),
    ],
)
def test_an_invisible_character_in_a_package_id_is_refused(character: str) -> None:
    with pytest.raises(InvalidField, match=f"U\\+{ord(character):04X}"):
        package_id(f"Big.{character}Editor")


def test_a_version_needs_four_fields_and_its_file() -> None:
    version = read()

    assert (version.locale, version.channel, version.upgrades) == (Locale.EN_US, "stable", UpgradeBehavior.INSTALL)
    assert (version.nested_type, version.nested_paths, version.switches) == (None, (), Switches())
    assert (version.product_code, version.upgrade_code, version.package_family_name) == ("", "", "")
    assert (version.version, version.architecture, version.installer_type, version.scope, version.server_filename) == (
        "1.0",
        Architecture.X64,
        FileType.MSI,
        Scope.MACHINE,
        "file.msi",
    )


@each("missing", ["package_version", "file_architect", "file_type", "file_scope"])
@each("blank", [(), ("",)])
def test_a_missing_required_field_is_named(missing: str, blank: tuple[str, ...]) -> None:
    with pytest.raises(InvalidField, match=f"^{missing}: "):
        read(**{missing: blank})


def test_the_error_without_a_file_lists_all_file_fields() -> None:
    with pytest.raises(InvalidField, match=r"^file: .*server_filename.*installer_url"):
        read(server_filename="", installer_url="")


def test_an_external_installer_has_a_url_and_a_digest() -> None:
    version = read(server_filename="", installer_url=ADDRESS, installer_sha256="AB" * 32)

    assert (version.server_filename, version.installer_url, version.sha256) == ("", ADDRESS, "ab" * 32)


@each(
    ("fields", "reason"),
    [
        ({"server_filename": "file.msi", "installer_url": ADDRESS, "installer_sha256": "ab" * 32}, "not both"),
        ({"server_filename": "", "installer_url": ADDRESS}, "installer_sha256: is required"),
        ({"server_filename": "", "installer_url": ADDRESS, "installer_sha256": "ab" * 31}, "installer_sha256: must be"),
        ({"server_filename": "", "installer_url": ADDRESS, "installer_sha256": "xy" * 32}, "installer_sha256: must be"),
        (
            {"server_filename": "", "installer_url": "http://a.example/", "installer_sha256": "ab" * 32},
            "installer_url: ",
        ),
        ({"server_filename": "file.msi", "installer_sha256": "ab" * 32}, "installer_sha256: is for installer_url only"),
        ({"server_filename": "", "installer_sha256": "ab" * 32}, "file: "),
    ],
)
def test_an_installer_has_exactly_one_complete_source(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        read(**fields)


@each(
    ("field", "sent", "attribute", "expected"),
    [
        ("file_architect", "ARM64", "architecture", "arm64"),
        ("file_type", "nullsoft", "installer_type", "NULLSOFT"),
        ("file_type_nested", "Wix", "nested_type", "WIX"),
        ("file_type", "portable", "installer_type", "PORTABLE"),
        ("file_type_nested", "font", "nested_type", "FONT"),
        ("file_scope", "User", "scope", "user"),
        ("package_locale", "ko-KR", "locale", "ko_KR"),
        ("package_locale", "zh_cn", "locale", "zh_CN"),
        ("package_locale", "de_at", "locale", "de-AT"),
        ("upgrades", "UNINSTALLPREVIOUS", "upgrades", "uninstallPrevious"),
    ],
)
def test_an_enumeration_has_its_specified_spelling(field: str, sent: str, attribute: str, expected: str) -> None:
    assert getattr(read(**{field: sent}), attribute) == expected


@each(
    "wrong",
    [
        {"file_architect": "x128"},
        {"file_type": "RPM"},
        {"file_type_nested": "msstore"},
        {"file_scope": "everyone"},
        {"package_locale": "en"},
        {"upgrades": "perhaps"},
        {"package_version": "x" * 129},
        {"package_version": " 1.0"},
        {"package_version": "1.0 "},
        {"package_version": "1\n0"},
        {"channel": "x" * 129},
        {"channel": " beta"},
        {"switch_Silent": "x" * 2049},
        {"switch_Repair": "/a\n/b"},
        {"productcode": UID},
        {"productcode": "{0A1B2C3D}"},
        {"upgradecode": f"{GUID} "},
        {"package_family_name": "x" * 257},
    ],
    ids=repr,
)
def test_the_field_of_an_invalid_value_is_named(wrong: dict[str, str]) -> None:
    (name,) = wrong

    with pytest.raises(InvalidField, match=f"^{name}: "):
        read(**wrong)


def test_switches_and_codes_are_stored_unchanged() -> None:
    names = ["Silent", "SilentWithProgress", "Interactive", "InstallLocation", "Log", "Upgrade", "Custom", "Repair"]

    version = read(**{f"switch_{name}": f"/{name} " for name in names}, productcode=GUID, upgradecode=GUID.lower())

    assert list(vars(version.switches).values()) == [f"/{name} " for name in names]
    assert (version.product_code, version.upgrade_code) == (GUID, GUID.lower())


def test_dependencies_are_stored() -> None:
    needed = read(
        dep_windows_features=("NetFx3", "Hyper-V"),
        dep_windows_libraries="Microsoft.UI.Xaml,Microsoft.VCLibs",
        dep_external="A licence",
        dep_pkg_identifier=("acme.runtime", "", "acme.fonts"),
        dep_pkg_min_version=("2.1", "", ""),
    ).dependencies

    assert needed.windows_features == ("NetFx3", "Hyper-V")
    assert needed.windows_libraries == ("Microsoft.UI.Xaml", "Microsoft.VCLibs")
    assert needed.external == ("A licence",)
    assert needed.packages == (PackageDependency("acme.runtime", "2.1"), PackageDependency("acme.fonts"))


@each(
    "wrong",
    [
        {"dep_pkg_identifier": ("a", "b"), "dep_pkg_min_version": ("1",)},
        {"dep_pkg_min_version": ("1",)},
        {"dep_pkg_identifier": ("",), "dep_pkg_min_version": ("1",)},
    ],
    ids=repr,
)
def test_package_dependencies_and_their_versions_come_in_pairs(wrong: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidField, match=r"^dep_pkg_"):
        read(**wrong)


def test_only_an_archive_has_nested_paths() -> None:
    paths = ("bin\\a, b.msi", "", "c/d..exe")
    assert read(file_type="zip", file_nested_path=paths).nested_paths == ("bin\\a, b.msi", "c/d..exe")
    assert read(file_type="exe", file_nested_path="/a.msi").nested_paths == ()


@each("path", ["/a.msi", "\\a.msi", "c:a.msi", "C:\\a.msi", "..", "../a.msi", "a\\..\\..\\b.msi", "x" * 513])
def test_a_nested_path_that_leaves_the_archive_is_refused(path: str) -> None:
    with pytest.raises(InvalidField, match=r"^file_nested_path: "):
        read(file_type="zip", file_nested_path=path)


@each("values", [(UID, UID[:-1] + "e"), (f"{UID},{UID[:-1]}e",), (f" {UID.upper()} , {UID}", UID[:-1] + "e")])
def test_uids_are_repeated_or_separated_by_commas(values: tuple[str, ...]) -> None:
    assert version_uids(form(versions_uids=values)) == (UID, UID[:-1] + "e")
    for missing in ((), ("",), (" , ",)):
        with pytest.raises(InvalidField, match=r"^versions_uids: "):
            version_uids(form(versions_uids=missing))


@each("text", ["1", UID.replace("-", ""), f"{{{UID}}}", f"urn:uuid:{UID}"])
def test_an_invalid_uid_is_an_unknown_version(text: str) -> None:
    with pytest.raises(VersionNotFound):
        version_uids(form(versions_uids=text))


@each(
    ("kind", "suffix"),
    [
        ("EXE", ".exe"),
        ("MSI", ".msi"),
        ("MSIX", ".msix"),
        ("APPX", ".appx"),
        ("ZIP", ".zip"),
        ("INNO", ".exe"),
        ("NULLSOFT", ".exe"),
        ("WIX", ".msi"),
        ("BURN", ".exe"),
        ("PORTABLE", ".exe"),
        ("FONT", ".ttf"),
    ],
)
def test_a_file_name_has_the_suffix_of_its_type(kind: str, suffix: str) -> None:
    assert read(file_type=kind, server_filename="file").suffix == suffix
    assert read(file_type=kind, server_filename="a.otf").suffix == (".otf" if kind == "FONT" else suffix)
