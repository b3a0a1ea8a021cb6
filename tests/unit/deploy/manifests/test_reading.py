"""Manifests of winget's are read strictly: what is wrong is refused, with the place and the reason."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from catalog_service.model.manifest.package import PackageManifest
from catalog_service.model.manifest.version import VersionManifest
from deploy.winget_import import yaml_reader
from deploy.winget_import.manifest import Manifest, assemble_manifest, parse_file
from deploy.winget_import.manifest_tree import RefusedManifest, find_manifests
from deploy.winget_import.schema.installer_form import manifest_installers
from deploy.winget_import.schema.package_form import new_package
from deploy.winget_import.yaml_reader import ManifestRefused
from tests.support.tables import each
from tests.support.winget.manifests import (
    INSTALLER,
    MINORS,
    TEXTS,
    ManifestFiles,
    installer,
    make_every_schema_version,
    make_full_manifest,
    make_manifest,
)

# Of the creation form, what is no field of the manifest's (section 4.5, and the decisions on its fields).
OWN_FIELDS = {
    *("productcode", "upgradecode", "file_nested_path", "package_family_name", "upgrades"),
    *("dep_windows_features", "dep_windows_libraries", "dep_external", "dep_pkg_identifier", "dep_pkg_min_version"),
    *(f"switch_{name}" for name in ("Silent", "SilentWithProgress", "Interactive", "InstallLocation", "Log")),
    *(f"switch_{name}" for name in ("Upgrade", "Custom", "Repair")),
}


def read(made: ManifestFiles, *, singleton: bool = False) -> Manifest:
    files = made.files(singleton=singleton).values()
    return assemble_manifest(Path("manifest"), [parse_file(yaml.safe_dump(fields).encode()) for fields in files])


def refusal(made: ManifestFiles) -> str:
    with pytest.raises(ManifestRefused) as refused:
        manifest_installers(read(made))
    return refused.value.detail


@each("singleton", [False, True])
@each("minor", MINORS)
def test_every_version_of_the_schema_is_read_with_all_that_it_knows(minor: int, singleton: bool) -> None:
    made = make_full_manifest(1, minor)
    if singleton:
        made.locales = []
    manifest = read(made, singleton=singleton)
    [one] = manifest_installers(manifest)
    said = {name for name, _ in one.installer.more} | {name for name, _ in new_package(manifest).more}
    assert said <= OWN_FIELDS | VersionManifest.model_fields.keys() | PackageManifest.model_fields.keys()
    assert (manifest.package_id, manifest.version) == (made.package_id, "1.1")


LATER = [
    (minor, name, value, table is TEXTS)
    for table in (TEXTS, INSTALLER)
    for minor, fields in table.items()
    for name, value in fields.items()
    if minor
]


@each(("minor", "name", "value", "of_texts"), LATER, ids=[name for _, name, _, _ in LATER])
def test_a_field_is_refused_in_manifests_older_than_it(minor: int, name: str, value: object, of_texts: bool) -> None:
    before = MINORS[MINORS.index(minor) - 1]
    made = make_manifest(0, before)
    (made.texts if of_texts else made.root)[name] = value
    assert f"{name} is there from ManifestVersion 1.{minor} on" in refusal(made)


Change = Callable[[ManifestFiles], object]
REFUSED: Sequence[tuple[str, Change]] = [
    ("PackageIdentifier: must be two to eight parts", lambda made: setattr(made, "package_id", "App")),
    ("PackageVersion: must be a version without", lambda made: setattr(made, "version", "1/2")),
    ("ManifestVersion: 1.29.0 is not known", lambda made: setattr(made, "minor", 29)),
    ("Publisher: is required", lambda made: made.texts.pop("Publisher")),
    ("License: is required", lambda made: made.texts.update(License=None)),
    ("PackageName: is shorter than 2 characters", lambda made: made.texts.update(PackageName="A")),
    ("ShortDescription: is longer than 256 characters", lambda made: made.texts.update(ShortDescription="a" * 257)),
    ("DefaultLocale: must be a language tag", lambda made: made.texts.update(PackageLocale="en_US")),
    ("PublisherUrl: must be an address", lambda made: made.texts.update(PublisherUrl="ftp://acme")),
    ("Tags: holds an item twice", lambda made: made.texts.update(Tags=["a", "a"])),
    ("Tags: holds more than 16 items", lambda made: made.texts.update(Tags=[str(n) for n in range(17)])),
    ("Publishr: is not known", lambda made: made.texts.update(Publishr="Acme")),
    ("Installers: List should have at least 1 item", lambda made: made.installers.clear()),
    ("Installers[0].InstallerSha256: must be a SHA-256", lambda made: made.installers[0].update(InstallerSha256="ab")),
    ("Installers[0].InstallerUrl: is required", lambda made: made.installers[0].pop("InstallerUrl")),
    ("InstallerUrl: is no address", lambda made: made.installers[0].update(InstallerUrl="https://[x/a.exe")),
    ("Installers[0].Architecture: Input should be", lambda made: made.installers[0].update(Architecture="mips")),
    ("Scope: Input should be", lambda made: made.root.update(Scope="Machine")),
    (
        "InstallModes[0]: must be one of interactive, silent, silentWithProgress",
        lambda made: made.root.update(InstallModes=["quiet"]),
    ),
    (
        "MinimumOSVersion: must be one to four numbers",
        lambda made: made.root.update(MinimumOSVersion="10.0.99999.0"),
    ),
    ("ReleaseDate: must be a date", lambda made: made.root.update(ReleaseDate="22.11.2026")),
    (
        "InstallerSuccessCodes[0]: must be a whole number",
        lambda made: made.root.update(InstallerSuccessCodes=[0]),
    ),
    ("InstallerAbortsTerminal: must be true or", lambda made: made.root.update(InstallerAbortsTerminal="perhaps")),
    (
        "WindowsFeatures[0]: must be a name of letters, digits, - and _",
        lambda made: made.root.update(Dependencies={"WindowsFeatures": ["Net Fx 4"]}),
    ),
    ("InstallerType: is required", lambda made: made.root.pop("InstallerType")),
    ("InstallerType: pwa is an address", lambda made: made.root.update(InstallerType="pwa")),
    ("are required with zip", lambda made: made.root.update(InstallerType="zip")),
    ("font is there from ManifestVersion 1.12 on", lambda made: made.root.update(InstallerType="font")),
    ("are not for msix", lambda made: made.installers[0].update(InstallerType="msix", ProductCode="x")),
    ("Installers[1]: cannot be told from an", lambda made: made.installers.append(installer("b.exe", b"b"))),
    ("has two files for one language", lambda made: made.locales.append({"PackageLocale": "EN-us"})),
]


@each(("reason", "change"), REFUSED, ids=[reason for reason, _ in REFUSED])
def test_what_is_wrong_is_refused_with_its_place(reason: str, change: Change) -> None:
    made = make_manifest()
    change(made)
    assert reason in refusal(made)


def test_texts_that_look_like_numbers_and_dates_stay_what_they_are() -> None:
    assert yaml_reader.parse_yaml(b"a: 1.10\nb: 2026-11-22\nc: 0x1F\nd: no\ne: ~\nf: '~'\ng:\n- 1_000\n") == {
        "a": "1.10",
        "b": "2026-11-22",
        "c": "0x1F",
        "d": "no",
        "f": "~",
        "g": ["1_000"],
    }


BOMBS = {
    "anchors and aliases are not read": b"a: &a [x]\nb: [*a, *a]\n",
    "line 2: anchors and aliases": b"a: 1\nb: &b 2\n",
    "more than 12 levels": b"[" * 500_000,
    "or 50000 values": b"[" + b"a," * 60_000 + b"]",
    "is larger than 1 MiB": b"a: " + b"x" * (1 << 20),
    "tags are not read": b"a: !!python/object/apply:os.system [id]\n",
    "a stands there twice": b"a: 1\na: 2\n",
    "a field's name must be a text": b"? [a]\n: 1\n",
    "more than one document": b"a: 1\n---\nb: 2\n",
    "is not UTF-8, in byte 0": b"\xff\xfea",
    "is empty": b"# nothing\n",
    "line 2: ": b"a: [1\nb: }",
    "is not YAML": b"a: \x00",
    "ManifestType: must be one of": b"- a\n",
}


@each("reason", BOMBS)
def test_a_file_that_is_no_plain_data_is_refused_before_it_costs_anything(reason: str) -> None:
    with pytest.raises(ManifestRefused) as refused:
        parse_file(BOMBS[reason])
    assert reason in refused.value.detail


def test_each_installer_inherits_the_fields_of_all_as_in_winget() -> None:
    made = make_manifest(
        0,
        InstallerSwitches={"Silent": "/S", "Custom": "/all"},
        ProductCode="all",
        PackageFamilyName="Acme.App_1234567890abc",
        AppsAndFeaturesEntries=[{"DisplayName": "All"}],
        Dependencies={"WindowsFeatures": ["NetFx3"]},
        NestedInstallerType="msi",
        NestedInstallerFiles=[{"RelativeFilePath": "all.msi"}],
        Commands=["all"],
    )
    made.installers += [
        installer("a.exe", b"a", "x86", InstallerSwitches={"Custom": "/own"}, ProductCode="own", Commands=["own"]),
        installer("b.msix", b"b", "arm", InstallerType="msix", Dependencies={"ExternalDependencies": ["A road"]}),
        installer("c.zip", b"c", "arm64", InstallerType="zip", NestedInstallerFiles=[{"RelativeFilePath": "own.msi"}]),
    ]
    exe, own, msix, archive = (one.model_dump(mode="json", exclude_unset=True) for one in read(made).installers)
    assert exe["installer_switches"] == {"silent": "/S", "custom": "/all"}
    assert own["installer_switches"] == {"silent": "/S", "custom": "/own"}
    assert [one.get("product_code") for one in (exe, own, msix, archive)] == ["all", "own", None, "all"]
    assert [one.get("package_family_name") for one in (exe, msix, archive)] == [None, "Acme.App_1234567890abc", None]
    assert ["apps_and_features_entries" in one for one in (exe, msix, archive)] == [True, False, True]
    assert exe["dependencies"] == {"windows_features": ["NetFx3"]}
    assert msix["dependencies"] == {"external_dependencies": ["A road"]}
    assert ["nested_installer_type" in one for one in (exe, msix, archive)] == [False, False, True]
    assert archive["nested_installer_files"] == [{"relative_file_path": "own.msi"}]
    assert (exe["commands"], own["commands"]) == (["all"], ["own"])


def test_what_is_kept_otherwise_than_it_is_written_is_said() -> None:
    made = make_manifest(0, ProductCode="App_is1", Authentication={"AuthenticationType": "microsoftEntraId"})
    made.installers[0]["Architecture"] = "neutral"
    made.root["Protocols"] = ["a,b"]
    [one] = manifest_installers(read(made))
    assert [note.partition(":")[0] for note in one.notes] == [
        "Architecture",
        "Authentication",
        "ProductCode",
        "Protocols",
    ]
    assert ("apps_and_features_entries", '[{"product_code":"App_is1"}]') in one.installer.more


def test_a_tree_is_read_folder_by_folder_and_a_bad_file_spoils_no_other(tmp_path: Path) -> None:
    folders = [made.write(tmp_path) for made in make_every_schema_version(4)]
    # It would be whole without this file, and say less.
    (folders[1] / "Acme.App1.locale.de-DE.yaml").write_text("a: [")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "workflow.yaml").write_text("on: push")
    found = list(find_manifests([tmp_path]))
    assert [one.package_id for one in found if isinstance(one, Manifest)] == ["Acme.App0", "Acme.App2", "Acme.App3"]
    refused = [one for one in found if isinstance(one, RefusedManifest)]
    assert [(one.path.name, one.version) for one in refused] == [("Acme.App1.locale.de-DE.yaml", ""), ("1.1", "1.1")]
    # A file that is named stands for the manifest that it is of.
    [named] = find_manifests([folders[2] / "Acme.App2.yaml"])
    assert (named.package_id, named.version) == ("Acme.App2", "1.2")


def test_of_a_tree_only_files_in_it_are_read(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", make_manifest(1).write(tmp_path / "outside", singleton=True)
    folder = make_manifest(2).write(tree, singleton=True)
    os.mkfifo(tree / "pipe.yaml")
    (tree / "zero.yaml").symlink_to("/dev/zero")
    (tree / "away.yaml").symlink_to(outside / "Acme.App1.yaml")
    (tree / "circle.yaml").symlink_to("circle.yaml")
    (tree / "folder").symlink_to(outside)
    (tree / "beside.yaml").symlink_to(folder / "Acme.App2.yaml")
    found = {one.path.name: getattr(one, "detail", one.package_id) for one in find_manifests([tree])}
    assert found == {
        "Acme.App2.yaml": "Acme.App2",
        "beside.yaml": "Acme.App2",
        "pipe.yaml": "cannot be read: is no regular file",
        "zero.yaml": "is a link to a file outside",
        "away.yaml": "is a link to a file outside",
        "circle.yaml": "cannot be read: Too many levels of symbolic links",
    }


@pytest.mark.parametrize("singleton", [True, False])
def test_a_link_that_is_named_is_followed(singleton: bool, tmp_path: Path) -> None:
    folder = make_manifest().write(tmp_path, singleton=singleton)
    [*others, named] = sorted(folder.iterdir())
    (folder / "installed").mkdir()
    (folder / "installed" / named.name).symlink_to(named.rename(tmp_path / named.name))
    for path in others:
        path.rename(folder / "installed" / path.name)
    [found] = find_manifests([folder / "installed" / named.name])
    assert isinstance(found, Manifest)
