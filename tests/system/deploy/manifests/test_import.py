"""`pkgrepo import` and `pkgrepo manifests` of winget manifests with the real services."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from catalog_service.model.manifest_fields import Fields
from common.auth.internal_tokens import Deployment
from common.tenants import VersionKey
from deploy.publish.client import RetryingClient
from deploy.publish.publisher import Publisher
from deploy.terminal import FileProgress
from deploy.winget_manifests.importer import DryRun, ManifestImport, Row
from deploy.winget_manifests.manifest import Manifest, find_manifests
from deploy.winget_manifests.sources import InstallersFolder, InstallerSources
from tests.support.processes.publish_command import open_cli_client, run_publish, start_publish
from tests.support.servers.certificates import make_certificate
from tests.support.servers.http_server import serve
from tests.support.system.publishing import download
from tests.support.system.services import Api, Services
from tests.support.wait import until
from tests.support.winget.client import WingetClient
from tests.support.winget.manifests import (
    MINORS,
    ManifestFiles,
    installer,
    make_every_schema_version,
    make_full_manifest,
    make_manifest,
)


async def imported(api: Api, tree: Path, *, trial: bool = False, keep_addresses: bool = False) -> Sequence[Row]:
    """Import a tree with its installers in the test's process. Returns the results."""
    sources = InstallerSources(InstallersFolder(tree / "installers"), None)
    async with open_cli_client(api) as http_client:
        client = RetryingClient(http_client, retry_timeout=20)
        publisher = Publisher(client, lambda _: nullcontext(FileProgress()), 1 << 20, open_installer=sources.open)
        only_one = await client.one_installer_a_version()
        publish = DryRun(client, sources).publish if trial else publisher.publish
        work = ManifestImport(publish, one_installer_a_version=only_one, at_once=4, keep_addresses=keep_addresses)
        await work.run(find_manifests([tree]))
    return work.rows


in_both_deployments = pytest.mark.parametrize(
    "either", [Deployment.MULTI, pytest.param(Deployment.SINGLE, marks=pytest.mark.full)], indirect=True
)


def outcomes(rows: Sequence[Row]) -> Sequence[tuple[str, str]]:
    return sorted((row.package_id, row.outcome) for row in rows)


@pytest.mark.parametrize("count", [len(MINORS), pytest.param(8 * len(MINORS), marks=pytest.mark.full)])
async def test_manifests_of_every_schema_version_are_published(tenant: Api, tmp_path: Path, count: int) -> None:
    manifests = list(make_every_schema_version(count, of_each=6))
    for number, manifest in enumerate(manifests):
        if number % 5 == 0:
            manifest.locales = []
        manifest.write(tmp_path, singleton=number % 5 == 0)
    options = ("--installers", tmp_path / "installers", "--at-once", "16", "--json")
    result = await run_publish(tenant, tmp_path, *options, command="import")
    assert result.status == 0, result.log
    report = json.loads(result.output)
    assert {name: report[name] for name in ("published", "there", "refused")} == {
        "published": count,
        "there": 0,
        "refused": 0,
    }
    assert f"{count} published" in result.log
    assert len({manifest.minor for manifest in manifests}) == len(MINORS)
    outcome_rows = sorted((row["package"], row["version"], row["outcome"]) for row in report["installers"])
    assert outcome_rows == sorted((manifest.package_id, manifest.version, "published") for manifest in manifests)
    # One of them is compared completely.
    manifest = manifests[11]
    versions = (await tenant.call("GET", "get_package_versions", manifest.package_id)).body
    [listed] = [one for one in versions if one["VERSION"] == manifest.version]
    assert listed["INSTALLER_SHA256"] == manifest.installers[0]["InstallerSha256"].lower()
    assert [await download(tenant, listed["INSTALLER_URL"])] == list(manifest.content.values())


@in_both_deployments
async def test_an_imported_manifest_is_exported_unchanged(either: Api, tmp_path: Path) -> None:
    manifests = [make_full_manifest(900 + minor, minor) for minor in MINORS]
    for manifest in manifests:
        del manifest.installers[0]["SignatureSha256"]  # These are no MSIX.
    archive, font, signed = (
        make_manifest(1000, 12, **ARCHIVE),
        make_manifest(1001, 12, InstallerType="font"),
        make_signed(1002),
    )
    manifests += [archive, font, signed]
    for manifest in manifests:
        # A missing field has the interface's default, which is exported.
        manifest.root.update(Scope="user", InstallerLocale="fr-FR", UpgradeBehavior="install")
        manifest.write(tmp_path / "before")
    assert {outcome for _, outcome in outcomes(await imported(either, tmp_path / "before"))} == {"published"}
    packages = options_of([manifest.package_id for manifest in manifests])
    written = await run_publish(either, tmp_path / "after", *packages, command="manifests")
    assert (written.status, len(written.output.splitlines())) == (0, len(manifests)), written.log
    before, after = read(tmp_path / "before"), read(tmp_path / "after")
    assert [content(manifest) for manifest in after] == [content(manifest) for manifest in before]


def make_signed(number: int) -> ManifestFiles:
    """The manifest of an MSIX with the digest of its signature."""
    manifest = make_manifest(number, 12, InstallerType="msix")
    manifest.installers[0]["SignatureSha256"] = "CD" * 32
    return manifest


ARCHIVE = {
    "InstallerType": "zip",
    "NestedInstallerType": "portable",
    "NestedInstallerFiles": [
        {"RelativeFilePath": "bin/a, b.exe", "PortableCommandAlias": "a"},
        {"RelativeFilePath": "bin/c.exe"},
    ],
}


def read(tree: Path) -> list[Manifest]:
    parsed = list(find_manifests([tree]))
    manifests = [manifest for manifest in parsed if isinstance(manifest, Manifest)]
    assert len(manifests) == len(parsed), parsed
    return manifests


def content(manifest: Manifest) -> dict[str, Any]:
    """The content of a manifest without its schema version and the addresses of installers."""
    return {
        "package_id": manifest.package_id,
        "version": manifest.version,
        "texts": fields_of(manifest.texts),
        "locales": [fields_of(locale) for locale in manifest.locales],
        "installers": [fields_of(each) for each in manifest.installers],
    }


def fields_of(part: Fields) -> dict[str, Any]:
    return part.model_dump(mode="json", exclude_defaults=True, exclude={"installer_url", "manifest_version"})


async def test_a_version_may_have_several_installers_if_allowed(services: Services, tmp_path: Path) -> None:
    tenant = await services.tenant(version_key=VersionKey.INSTALLER)
    manifest = make_manifest(0, Scope="machine", InstallerSwitches={"Silent": "/S"})
    # Many manifests have the same bytes for two scopes.
    [(name, bytes_of_it)] = manifest.content.items()
    manifest.installers.append(installer(name, bytes_of_it, Scope="user", InstallerSwitches={"Custom": "/me"}))
    manifest.installers.append(installer("other.exe", b"other", "arm64"))
    manifest.content["other.exe"] = b"other"
    manifest.write(tmp_path)
    assert outcomes(await imported(tenant, tmp_path)) == [(manifest.package_id, "published")] * 3
    winget = WingetClient(tenant.session, f"{tenant.base_url}/winget")
    await winget.add()
    listed = (await winget.show(manifest.package_id))["Installers"]
    assert sorted((row["Architecture"], row["Scope"], row["InstallerSwitches"]["Silent"]) for row in listed) == [
        ("arm64", "machine", "/S"),
        ("x64", "machine", "/S"),
        ("x64", "user", "/S"),
    ]
    # Existing versions are skipped without their installers.
    for path in (tmp_path / "installers").iterdir():
        path.unlink()
    assert outcomes(await imported(tenant, tmp_path)) == [(manifest.package_id, "there")] * 3


async def test_a_rejected_manifest_is_reported_and_others_are_imported(tenant: Api, tmp_path: Path) -> None:
    several, missing, other, wrong, server, good = (make_manifest(number) for number in range(6))
    several.installers.append(installer("x.exe", b"x", "arm64"))
    missing.content.clear()
    other.content = dict.fromkeys(other.content, b"other bytes")
    wrong.texts["License"] = "no"
    server.texts["Author"] = "W\u202eile"  # valid in the schema
    for manifest in (several, missing, other, wrong, server, good):
        manifest.write(tmp_path)
    rows = await imported(tenant, tmp_path)
    problems = {row.package_id or row.manifest.name: row.problem for row in rows}
    for named, code, reason in (
        ("Acme.App0", "manifest_refused", "with version_key=installer in edit_settings"),
        ("Acme.App1", "installer_missing", "setup-1.exe is not in"),
        ("Acme.App2", "sha256_differs", "setup-2.exe has the SHA-256"),
        ("Acme.App3", "manifest_refused", "License: is shorter than 3 characters"),
        ("Acme.App4", "invalid_field", "author"),
    ):
        problem = problems[named]
        assert problem is not None
        assert (problem.code, reason in problem.detail) == (code, True)
    assert [row.outcome for row in rows if not row.problem] == ["published"]
    # A failed manifest leaves nothing behind.
    assert (await tenant.call("GET", "get_package_versions", "Acme.App2")).body == []


async def test_control_characters_of_manifests_do_not_reach_the_terminal(tenant: Api, tmp_path: Path) -> None:
    manifest = make_manifest(0)
    manifest.package_id = "Acme.App\x9b31m"
    manifest.texts["\x1b]0;owned\x07"] = "[red]"
    manifest.write(tmp_path / "tree")
    (tmp_path / "tree" / "\x1b[2J\udcff.yaml").write_text("\n")
    result = await run_publish(tenant, tmp_path / "tree", "--fetch", "--json", command="import")
    assert result.status == 1
    assert (result.output + result.log).replace("\n", " ").isprintable()
    assert all(
        text in result.log
        for text in (r"Acme.App\x9b31m 1.0", r"\x1b]0;owned\x07: is not known", r"/\x1b[2J\udcff.yaml:")
    )
    assert len(json.loads(result.output)["installers"]) == 2


@pytest.mark.full
async def test_the_same_command_finishes_a_killed_run(tenant: Api, tmp_path: Path) -> None:
    manifests = list(make_every_schema_version(12))
    for manifest in manifests:
        manifest.write(tmp_path)
    options = (tmp_path, "--installers", tmp_path / "installers", "--json", "--at-once", "2")

    async def begun() -> bool:
        versions = [package["VERSIONS"] for package in (await tenant.call("POST", "get_packages")).body]
        return sum(map(len, versions)) >= 3

    async with start_publish(tenant, *options, command="import") as process:
        await until(begun)
        process.kill()
        await process.communicate()
    rows = await imported(tenant, tmp_path)
    assert {row.outcome for row in rows} <= {"published", "there"}
    assert sum(row.outcome == "there" for row in rows) >= 3
    assert sorted(row.package_id for row in rows) == sorted(manifest.package_id for manifest in manifests)


async def test_installers_missing_in_the_folder_are_downloaded(tenant: Api, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.1")
    right, altered = make_manifest(0), make_manifest(1)

    async def give(request: web.BaseRequest) -> web.StreamResponse:
        name = request.path.strip("/")
        return web.Response(body=right.content.get(name, b"something else"))

    async with serve(give, certificate) as port:
        for manifest in (right, altered):
            [name] = manifest.content
            manifest.installers[0]["InstallerUrl"] = f"https://127.0.0.1:{port}/{name}"
            manifest.write(tmp_path / "tree", tmp_path / "elsewhere")
        options = (tmp_path / "tree", "--fetch", "--json", "--ca-file", certificate)
        result = await run_publish(tenant, *options, "--allow-network", "127.0.0.1/32", command="import")
    assert result.status == 1
    outcome = {row["package"]: row for row in json.loads(result.output)["installers"]}
    assert outcome["Acme.App0"]["outcome"] == "published"
    assert outcome["Acme.App1"]["error"]["code"] == "sha256_differs"


@in_both_deployments
async def test_external_addresses_are_imported_and_exported_unchanged(either: Api, tmp_path: Path) -> None:
    manifests = [make_manifest(2000), make_signed(2001)]
    for manifest in manifests:
        manifest.content.clear()  # Nothing can download them.
        manifest.root.update(Scope="user", InstallerLocale="fr-FR", UpgradeBehavior="install")
        manifest.write(tmp_path / "before")
    ids = [manifest.package_id for manifest in manifests]
    for outcome in ("new", "published", "there"):
        rows = await imported(either, tmp_path / "before", trial=outcome == "new", keep_addresses=True)
        assert outcomes(rows) == [(name, outcome) for name in ids]
    written = await run_publish(either, tmp_path / "after", *options_of(ids), command="manifests")
    assert written.status == 0, written.log
    before, after = read(tmp_path / "before"), read(tmp_path / "after")
    assert [content(manifest) for manifest in after] == [content(manifest) for manifest in before]
    assert [addresses(manifest) for manifest in after] == [addresses(manifest) for manifest in before]


def options_of(ids: Sequence[str]) -> Sequence[str]:
    return [part for name in ids for part in ("--package", name)]


def addresses(manifest: Manifest) -> Sequence[str]:
    return [installer.installer_url for installer in manifest.installers]


async def test_the_command_imports_addresses_without_installers(tenant: Api, tmp_path: Path) -> None:
    accepted, refused = make_manifest(0), make_manifest(1)
    refused.installers[0]["InstallerUrl"] = "https://192.168.0.7/setup-1.exe"
    for manifest in (accepted, refused):
        manifest.content.clear()
        manifest.write(tmp_path)
    for option, outcome in (("--dry-run", "new"), ("--json", "published")):
        result = await run_publish(tenant, tmp_path, "--keep-addresses", "--json", option, command="import")
        assert result.status == 1, result.log
        rows = {row.get("package"): row for row in json.loads(result.output)["installers"]}
        assert rows["Acme.App0"]["outcome"] == outcome
        assert "InstallerUrl: has an IP address that is not public" in rows["Acme.App1"]["error"]["detail"]
    (listed,) = (await tenant.call("GET", "get_package_versions", "Acme.App0")).body
    assert listed["INSTALLER_URL"] == accepted.installers[0]["InstallerUrl"]
