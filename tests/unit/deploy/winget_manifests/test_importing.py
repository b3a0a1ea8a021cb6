"""The import of manifests, and their export."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog_service.model.enumerations import Architecture, FileType
from deploy.publish.model import Installer, NewPackage, NotPublished, OtherBytes, Published, Unreachable
from deploy.winget_manifests.exporter import ManifestExport
from deploy.winget_manifests.importer import ManifestImport, Result
from deploy.winget_manifests.manifest import find_manifests
from deploy.winget_manifests.sources import InstallerMissing, InstallersFolder, InstallerSources
from tests.support.winget.manifests import make_manifest

CONTENT = b"an installer"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Publisher:
    """Publishes nothing, and records its calls."""

    def __init__(self, problem: Unreachable | None = None) -> None:
        self._problem = problem
        self.packages: dict[str, NewPackage] = {}

    async def publish(self, package_id: str, package: NewPackage, installers: Sequence[Installer]) -> Sequence[Result]:
        self.packages[package_id] = package
        if self._problem:
            return [NotPublished(installer, self._problem) for installer in installers]
        return [Published(installer, "uid", installer.sha256, 1, 0, created=True) for installer in installers]


def make_installer(name: str = "setup.exe", sha256: str = SHA256) -> Installer:
    return Installer(Path(name), "Acme.App", "1", Architecture.X64, FileType.EXE, sha256=sha256)


async def test_a_package_gets_the_fields_of_its_newest_manifest(tmp_path: Path) -> None:
    for version in ("1.9", "1.10", "1.2"):
        sample = make_manifest()
        sample.version = version
        sample.texts["PackageName"] = f"App of {version}"
        sample.write(tmp_path)
    publisher = Publisher()
    work = ManifestImport(publisher.publish, one_installer_a_version=True, at_once=4)
    await work.run(find_manifests([tmp_path]))
    assert [package.name for package in publisher.packages.values()] == ["App of 1.10"]
    assert sorted(row.version for row in work.rows) == ["1.10", "1.2", "1.9"]


async def test_an_import_stops_if_the_server_stays_unreachable(tmp_path: Path) -> None:
    for number in range(5):
        make_manifest(number).write(tmp_path)
    publisher = Publisher(Unreachable("It does not answer."))
    work = ManifestImport(publisher.publish, one_installer_a_version=True, at_once=1)
    await work.run(find_manifests([tmp_path]))
    assert work.gave_up is not None
    assert len(publisher.packages) == 1


@pytest.mark.parametrize(
    "name", ["setup.exe", "SETUP.EXE", f"{SHA256}.exe", SHA256.upper(), "deep/below/setup.exe", "of another name.bin"]
)
async def test_an_installer_is_found_by_its_name_or_its_digest(name: str, tmp_path: Path) -> None:
    (tmp_path / "beside.exe").write_bytes(b"another")
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT)
    assert await InstallersFolder(tmp_path).find(make_installer()) == path


async def test_one_of_several_files_with_a_name_is_chosen_by_its_digest(tmp_path: Path) -> None:
    for folder, content in (("1.0", b"older"), ("1.1", CONTENT)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "setup.exe").write_bytes(content)
    assert await InstallersFolder(tmp_path).find(make_installer()) == tmp_path / "1.1" / "setup.exe"


async def test_a_missing_installer_is_distinguished_from_an_altered_one(tmp_path: Path) -> None:
    (tmp_path / "setup.exe").write_bytes(b"altered")
    sources = InstallerSources(InstallersFolder(tmp_path), None)
    with pytest.raises(OtherBytes, match="not " + SHA256):
        await sources.find(make_installer())
    with pytest.raises(InstallerMissing, match="is not in"):
        await sources.find(make_installer("another.exe"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"InstallerUrl": "http://downloads.example.com/setup.exe"}, "InstallerUrl: must begin with https://"),
        ({"InstallerUrl": "https://127.0.0.1/setup.exe"}, "InstallerUrl: has an IP address that is not public"),
        ({"InstallerUrl": "https://a:s3cret@b.example/setup.exe"}, "InstallerUrl: must not hold the name"),
        (
            {"Authentication": {"AuthenticationType": "microsoftEntraId"}},
            "Authentication: is not kept, and there is no installer at InstallerUrl without it",
        ),
    ],
)
async def test_a_forbidden_installer_address_is_refused_before_any_request(
    fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    forbidden, allowed = make_manifest(0), make_manifest(1)
    forbidden.installers[0].update(fields)
    allowed.installers[0]["Authentication"] = {"AuthenticationType": "none"}
    for sample in (forbidden, allowed):
        sample.write(tmp_path)
    publisher = Publisher()
    work = ManifestImport(publisher.publish, one_installer_a_version=True, at_once=1, keep_addresses=True)
    await work.run(find_manifests([tmp_path]))
    refused, published = work.rows
    assert refused.problem is not None
    assert refused.problem.detail.startswith(f"Installers[0]: {reason}")
    assert "s3cret" not in refused.problem.detail
    assert (published.problem, published.notes) == (None, [])
    assert [*publisher.packages] == ["Acme.App1"]


class FakeServer:
    """A server with versions of one package."""

    def __init__(self, *versions: str, installer: Mapping[str, Any] | None = None, **texts: Any) -> None:
        sample = make_manifest()
        self._data: dict[str, Any] = {
            "PackageIdentifier": sample.package_id,
            "Versions": [
                {
                    "PackageVersion": version,
                    "DefaultLocale": {**sample.texts, **texts},
                    "Installers": [{**sample.installers[0], "InstallerType": "exe", **(installer or {})}],
                }
                for version in versions
            ],
        }

    async def package_ids(self) -> Sequence[str]:
        return ["Acme.App0"]

    async def manifest(self, _: str) -> dict[str, Any]:
        return self._data


async def test_files_are_written_in_the_folder_of_a_version_only(tmp_path: Path) -> None:
    done = await ManifestExport(FakeServer("1.10", "..", "."), tmp_path / "written").run([])
    assert [(result.version, result.problem is None) for result in done] == [
        ("1.10", True),
        ("..", False),
        (".", False),
    ]
    folder = tmp_path / "written" / "manifests" / "a" / "Acme" / "App0" / "1.10"
    assert {path.parent for path in tmp_path.rglob("*.yaml")} == {folder}


async def test_a_manifest_that_the_schema_refuses_is_not_written(tmp_path: Path) -> None:
    [result] = await ManifestExport(FakeServer("1.0", License="no"), tmp_path).run([])
    assert result.problem is not None
    assert "License: is shorter than 3 characters" in result.problem.detail
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("installer", "version"),
    [
        ({}, "1.10.0"),
        ({"InstallerType": "font"}, "1.12.0"),
        ({"DesiredStateConfiguration": {"DSCv3": {"Resources": [{"Type": "Acme/App"}]}}}, "1.28.0"),
    ],
    ids=["usual", "font", "configuration"],
)
async def test_manifest_is_written_in_the_lowest_sufficient_schema_version(
    installer: Mapping[str, Any], version: str, tmp_path: Path
) -> None:
    [result] = await ManifestExport(FakeServer("1.0", installer=installer), tmp_path).run([])

    written = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in result.folder.iterdir()]

    assert result.problem is None
    assert {file["ManifestVersion"] for file in written} == {version}


async def test_signed_icon_of_the_server_is_not_written(tmp_path: Path) -> None:
    digest = "ab" * 32
    own = {"IconUrl": "https://acme.example.com/a.png", "IconFileType": "png", "IconSha256": digest}
    logo = {**own, "IconUrl": f"https://pkg.example.com/acme/icon/Acme.App0/{digest}.png?expires=9&signature={digest}"}
    offering = FakeServer("1.0", "1.1", Icons=[own, logo])

    done = await ManifestExport(offering, tmp_path).run([])

    texts = [yaml.safe_load(next(result.folder.glob("*.locale.*")).read_text(encoding="utf-8")) for result in done]
    assert [text["Icons"] for text in texts] == [[own], [own]]


async def test_icons_are_absent_if_the_only_icon_is_signed(tmp_path: Path) -> None:
    digest = "ab" * 32
    address = f"https://pkg.example.com/acme/icon/Acme.App0/{digest}.png?expires=9&signature={digest}"
    icon = {"IconUrl": address, "IconFileType": "png", "IconSha256": digest}

    [result] = await ManifestExport(FakeServer("1.0", Icons=[icon]), tmp_path).run([])

    assert "Icons" not in next(result.folder.glob("*.locale.*")).read_text(encoding="utf-8")
