"""Winget manifests are read strictly: an error is refused with its field and the reason."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from catalog_service.model.manifest import PackageManifest, VersionManifest
from deploy.winget_manifests import manifest as manifest_module
from deploy.winget_manifests.forms import manifest_installers, new_package
from deploy.winget_manifests.manifest import (
    Manifest,
    ManifestRefused,
    RefusedManifest,
    assemble_manifest,
    find_manifests,
    parse_file,
)
from tests.support.tables import each
from tests.support.winget.manifest_fields import INSTALLER, TEXTS
from tests.support.winget.manifests import (
    MINORS,
    ManifestFiles,
    installer,
    make_every_schema_version,
    make_full_manifest,
    make_manifest,
)

# Fields of the creation form that are no manifest fields (section 4.5 and the decisions on its fields).
OWN_FIELDS = {
    *("productcode", "upgradecode", "file_nested_path", "package_family_name", "upgrades"),
    *("dep_windows_features", "dep_windows_libraries", "dep_external", "dep_pkg_identifier", "dep_pkg_min_version"),
    *(f"switch_{name}" for name in ("Silent", "SilentWithProgress", "Interactive", "InstallLocation", "Log")),
    *(f"switch_{name}" for name in ("Upgrade", "Custom", "Repair")),
}


def read(sample: ManifestFiles, *, singleton: bool = False) -> Manifest:
    files = sample.files(singleton=singleton).values()
    return assemble_manifest(Path("manifest"), [parse_file(yaml.safe_dump(fields).encode()) for fields in files])


def refusal(sample: ManifestFiles) -> str:
    with pytest.raises(ManifestRefused) as refused:
        manifest_installers(read(sample))
    return refused.value.detail


@each("singleton", [False, True])
@each("minor", MINORS)
def test_every_schema_version_is_read_with_all_its_fields(minor: int, singleton: bool) -> None:
    sample = make_full_manifest(1, minor)
    if singleton:
        sample.locales = []
    manifest = read(sample, singleton=singleton)
    [result] = manifest_installers(manifest)
    fields_read = {name for name, _ in result.installer.more} | {name for name, _ in new_package(manifest).more}
    assert fields_read <= OWN_FIELDS | VersionManifest.model_fields.keys() | PackageManifest.model_fields.keys()
    assert (manifest.package_id, manifest.version) == (sample.package_id, "1.1")


LATER = [
    (minor, name, value, table is TEXTS)
    for table in (TEXTS, INSTALLER)
    for minor, fields in table.items()
    for name, value in fields.items()
    if minor
]


@each(("minor", "name", "value", "of_texts"), LATER, ids=[name for _, name, _, _ in LATER])
def test_a_field_is_refused_in_older_schema_versions(minor: int, name: str, value: object, of_texts: bool) -> None:
    before = MINORS[MINORS.index(minor) - 1]
    sample = make_manifest(0, before)
    (sample.texts if of_texts else sample.root)[name] = value
    assert f"{name} is there from ManifestVersion 1.{minor} on" in refusal(sample)


Change = Callable[[ManifestFiles], object]
REFUSED: Sequence[tuple[str, Change]] = [
    ("PackageIdentifier: must be two to eight parts", lambda sample: setattr(sample, "package_id", "App")),
    ("PackageVersion: must be a version without", lambda sample: setattr(sample, "version", "1/2")),
    ("ManifestVersion: 1.29.0 is not known", lambda sample: setattr(sample, "minor", 29)),
    ("Publisher: is required", lambda sample: sample.texts.pop("Publisher")),
    ("License: is required", lambda sample: sample.texts.update(License=None)),
    ("PackageName: is shorter than 2 characters", lambda sample: sample.texts.update(PackageName="A")),
    ("ShortDescription: is longer than 256 characters", lambda sample: sample.texts.update(ShortDescription="a" * 257)),
    ("DefaultLocale: must be a language tag", lambda sample: sample.texts.update(PackageLocale="en_US")),
    ("PublisherUrl: must be an address", lambda sample: sample.texts.update(PublisherUrl="ftp://acme")),
    ("Tags: holds an item twice", lambda sample: sample.texts.update(Tags=["a", "a"])),
    ("Tags: holds more than 16 items", lambda sample: sample.texts.update(Tags=[str(n) for n in range(17)])),
    ("Publishr: is not known; did you mean Publisher?", lambda sample: sample.texts.update(Publishr="Acme")),
    ("InstallerTyp: is not known; did you mean InstallerType?", lambda sample: sample.root.update(InstallerTyp="exe")),
    (
        "InstallerSwitches.silent: is not known; did you mean Silent?",
        lambda sample: sample.root.update(InstallerSwitches={"silent": "/S"}),
    ),
    (
        "Installers[0].Dependencies.PackageDependencies[0].PackageId: is not known; did you mean PackageIdentifier?",
        lambda sample: sample.installers[0].update(
            Dependencies={"PackageDependencies": [{"PackageIdentifier": "Acme.Runtime", "PackageId": "Acme.Runtime"}]}
        ),
    ),
    ("Installers[0].Xyzzy: is not known", lambda sample: sample.installers[0].update(Xyzzy="1")),
    ("Installers: List should have at least 1 item", lambda sample: sample.installers.clear()),
    (
        "Installers[0].InstallerSha256: must be a SHA-256",
        lambda sample: sample.installers[0].update(InstallerSha256="ab"),
    ),
    ("Installers[0].InstallerUrl: is required", lambda sample: sample.installers[0].pop("InstallerUrl")),
    ("InstallerUrl: is no address", lambda sample: sample.installers[0].update(InstallerUrl="https://[x/a.exe")),
    ("Installers[0].Architecture: Input should be", lambda sample: sample.installers[0].update(Architecture="mips")),
    ("Scope: Input should be", lambda sample: sample.root.update(Scope="Machine")),
    (
        "InstallModes[0]: must be one of interactive, silent, silentWithProgress",
        lambda sample: sample.root.update(InstallModes=["quiet"]),
    ),
    (
        "MinimumOSVersion: must be one to four numbers",
        lambda sample: sample.root.update(MinimumOSVersion="10.0.99999.0"),
    ),
    ("ReleaseDate: must be a date", lambda sample: sample.root.update(ReleaseDate="22.11.2026")),
    (
        "InstallerSuccessCodes[0]: must be a whole number",
        lambda sample: sample.root.update(InstallerSuccessCodes=[0]),
    ),
    ("InstallerAbortsTerminal: must be true or", lambda sample: sample.root.update(InstallerAbortsTerminal="perhaps")),
    (
        "WindowsFeatures[0]: must be a name of letters, digits, - and _",
        lambda sample: sample.root.update(Dependencies={"WindowsFeatures": ["Net Fx 4"]}),
    ),
    ("InstallerType: is required", lambda sample: sample.root.pop("InstallerType")),
    ("InstallerType: pwa is an address", lambda sample: sample.root.update(InstallerType="pwa")),
    ("are required with zip", lambda sample: sample.root.update(InstallerType="zip")),
    ("font is there from ManifestVersion 1.12 on", lambda sample: sample.root.update(InstallerType="font")),
    ("are not for msix", lambda sample: sample.installers[0].update(InstallerType="msix", ProductCode="x")),
    ("Installers[1]: cannot be told from an", lambda sample: sample.installers.append(installer("b.exe", b"b"))),
    ("has two files for one language", lambda sample: sample.locales.append({"PackageLocale": "EN-us"})),
]


@each(("reason", "change"), REFUSED, ids=[reason for reason, _ in REFUSED])
def test_an_error_is_refused_with_its_field(reason: str, change: Change) -> None:
    sample = make_manifest()
    change(sample)
    assert reason in refusal(sample)


def test_texts_that_look_like_numbers_and_dates_stay_texts() -> None:
    assert manifest_module.parse_yaml(b"a: 1.10\nb: 2026-11-22\nc: 0x1F\nd: no\ne: ~\nf: '~'\ng:\n- 1_000\n") == {
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
def test_a_file_with_unsafe_yaml_is_refused_early(reason: str) -> None:
    with pytest.raises(ManifestRefused) as refused:
        parse_file(BOMBS[reason])
    assert reason in refused.value.detail


def test_each_installer_inherits_the_common_fields_as_in_winget() -> None:
    sample = make_manifest(
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
    sample.installers += [
        installer("a.exe", b"a", "x86", InstallerSwitches={"Custom": "/own"}, ProductCode="own", Commands=["own"]),
        installer("b.msix", b"b", "arm", InstallerType="msix", Dependencies={"ExternalDependencies": ["A road"]}),
        installer("c.zip", b"c", "arm64", InstallerType="zip", NestedInstallerFiles=[{"RelativeFilePath": "own.msi"}]),
    ]
    exe, own, msix, archive = (fields.model_dump(mode="json", exclude_unset=True) for fields in read(sample).installers)
    assert exe["installer_switches"] == {"silent": "/S", "custom": "/all"}
    assert own["installer_switches"] == {"silent": "/S", "custom": "/own"}
    assert [fields.get("product_code") for fields in (exe, own, msix, archive)] == ["all", "own", None, "all"]
    assert [fields.get("package_family_name") for fields in (exe, msix, archive)] == [
        None,
        "Acme.App_1234567890abc",
        None,
    ]
    assert ["apps_and_features_entries" in fields for fields in (exe, msix, archive)] == [True, False, True]
    assert exe["dependencies"] == {"windows_features": ["NetFx3"]}
    assert msix["dependencies"] == {"external_dependencies": ["A road"]}
    assert ["nested_installer_type" in fields for fields in (exe, msix, archive)] == [False, False, True]
    assert archive["nested_installer_files"] == [{"relative_file_path": "own.msi"}]
    assert (exe["commands"], own["commands"]) == (["all"], ["own"])


def test_a_field_that_is_stored_differently_is_reported() -> None:
    sample = make_manifest(0, ProductCode="App_is1", Authentication={"AuthenticationType": "microsoftEntraId"})
    sample.installers[0]["Architecture"] = "neutral"
    sample.root["Protocols"] = ["a,b"]
    [result] = manifest_installers(read(sample))
    assert [note.partition(":")[0] for note in result.notes] == [
        "Architecture",
        "Authentication",
        "ProductCode",
        "Protocols",
    ]
    assert ("apps_and_features_entries", '[{"product_code":"App_is1"}]') in result.installer.more


def test_a_bad_file_in_a_folder_tree_does_not_affect_others(tmp_path: Path) -> None:
    folders = [sample.write(tmp_path) for sample in make_every_schema_version(4)]
    # The manifest would be complete without this file, but with fewer fields.
    (folders[1] / "Acme.App1.locale.de-DE.yaml").write_text("a: [")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "workflow.yaml").write_text("on: push")
    manifests = list(find_manifests([tmp_path]))
    assert [manifest.package_id for manifest in manifests if isinstance(manifest, Manifest)] == [
        "Acme.App0",
        "Acme.App2",
        "Acme.App3",
    ]
    refused = [manifest for manifest in manifests if isinstance(manifest, RefusedManifest)]
    assert [(manifest.path.name, manifest.version) for manifest in refused] == [("Acme.App1.locale.de-DE.yaml", "1.1")]
    # A named file stands for its manifest.
    [single] = find_manifests([folders[2] / "Acme.App2.yaml"])
    assert (single.package_id, single.version) == ("Acme.App2", "1.2")


def test_each_mistake_of_a_folder_is_reported_once(tmp_path: Path) -> None:
    first, second = make_manifest(0), make_manifest(1)
    first.texts["Publishr"] = "Acme"
    for sample in (first, second):
        for path in sample.write(tmp_path / "tree").iterdir():
            path.rename(tmp_path / path.name)
    bad, good = find_manifests([tmp_path])
    assert isinstance(bad, RefusedManifest)
    assert (bad.path.name, bad.package_id) == ("Acme.App0.locale.en-US.yaml", "Acme.App0")
    assert (good.package_id, isinstance(good, Manifest)) == ("Acme.App1", True)


def test_a_refused_file_of_no_known_manifest_refuses_all_of_its_folder(tmp_path: Path) -> None:
    for number in range(2):
        for path in make_manifest(number).write(tmp_path / "tree").iterdir():
            path.rename(tmp_path / path.name)
    (tmp_path / "broken.yaml").write_text("a: [")
    reasons = {manifest.package_id: getattr(manifest, "detail", "") for manifest in find_manifests([tmp_path])}
    incomplete = "is incomplete: broken.yaml could not be read"
    assert reasons.pop("").startswith("line 2:")
    assert reasons == {"Acme.App0": incomplete, "Acme.App1": incomplete}


def test_only_files_inside_of_the_tree_are_read(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", make_manifest(1).write(tmp_path / "outside", singleton=True)
    folder = make_manifest(2).write(tree, singleton=True)
    os.mkfifo(tree / "pipe.yaml")
    (tree / "zero.yaml").symlink_to("/dev/zero")
    (tree / "away.yaml").symlink_to(outside / "Acme.App1.yaml")
    (tree / "circle.yaml").symlink_to("circle.yaml")
    (tree / "folder").symlink_to(outside)
    (tree / "beside.yaml").symlink_to(folder / "Acme.App2.yaml")
    results = {
        manifest.path.name: getattr(manifest, "detail", manifest.package_id) for manifest in find_manifests([tree])
    }
    assert results == {
        "Acme.App2.yaml": "Acme.App2",
        "beside.yaml": "Acme.App2",
        "pipe.yaml": "cannot be read: is no regular file",
        "zero.yaml": "is a link to a file outside",
        "away.yaml": "is a link to a file outside",
        "circle.yaml": "cannot be read: Too many levels of symbolic links",
    }


@pytest.mark.parametrize("singleton", [True, False])
def test_a_named_link_is_followed(singleton: bool, tmp_path: Path) -> None:
    folder = make_manifest().write(tmp_path, singleton=singleton)
    [*others, linked] = sorted(folder.iterdir())
    (folder / "installed").mkdir()
    (folder / "installed" / linked.name).symlink_to(linked.rename(tmp_path / linked.name))
    for path in others:
        path.rename(folder / "installed" / path.name)
    [manifest] = find_manifests([folder / "installed" / linked.name])
    assert isinstance(manifest, Manifest)
