"""`pkgrepo publish` in both deployments, and the server's refusals."""

import hashlib
import os
from pathlib import Path

import pytest

from catalog_service.model.enumerations import Architecture, FileType
from deploy.publish.model import Installer
from tests.support.processes.publish_command import run_publish
from tests.support.system.publishing import add_package, catalog, download, package_id, publish, send_chunk
from tests.support.system.services import Api, Services


@pytest.fixture
async def package(tenant: Api) -> str:
    """A package of the tenant, without versions."""
    name = package_id()
    await add_package(tenant, name)
    return name


def make_file(folder: Path, name: str = "setup.exe", size: int = 100_000) -> Path:
    path = folder / name
    path.write_bytes(os.urandom(size))
    return path


async def listed(api: Api, package: str) -> list[dict[str, str]]:
    answer = await api.call("GET", "get_package_versions", package)
    assert answer.status == 200
    body: list[dict[str, str]] = answer.body
    return body


async def storage(api: Api) -> tuple[int, int]:
    """The used and reserved bytes."""
    information = (await api.call("GET", "server_information")).body
    return information["storage_used"], information["storage_reserved"]


async def test_a_published_file_is_downloaded_unchanged(either: Api, tmp_path: Path) -> None:
    name, file = package_id(), make_file(tmp_path, size=(3 << 20) + 5)
    await add_package(either, name, package_name=name)
    result = await run_publish(either, file, "--package", name, "--version", "1.2.3", "--chunk-size", "1", "--json")
    assert result.status == 0, result.log
    [version] = await listed(either, name)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert result.documents == [
        {
            "file": str(file),
            "uid": version["UID"],
            "version": "1.2.3",
            "architecture": "x64",
            "sha256": sha256,
            "size": file.stat().st_size,
            "resumed_from": 0,
            "created": True,
            "shared_identities": [],
            "warnings": [
                "An EXE without a silent switch may wait for a click that nobody can make. Add --switch.",
            ],
            "state": "Offered to the ring everyone.",
        }
    ]
    assert version["INSTALLER_SHA256"] == sha256
    assert await download(either, version["INSTALLER_URL"]) == file.read_bytes()


async def test_the_options_set_the_fields_of_the_version(tenant: Api, package: str, tmp_path: Path) -> None:
    product, upgrade = "{1294A4C5-9977-480F-9497-C0EA1E630130}", "{3118AB4C-B433-4FBB-B9FA-8F9CA4B5C103}"
    options = {
        "--version": "128.0.3",
        "--scope": "USER",
        "--locale": "de-de",
        "--channel": "beta",
        "--switch": "silent=/S /D=C:\\App",
        "--nested-type": "MSI",
        "--nested-path": "setup/firefox.msi",
        "--product-code": product,
        "--upgrade-code": upgrade,
        "--package-family-name": "Mozilla.Firefox_n80bbvh6b1yt2",
        "--needs-package": "Microsoft.VCRedist=14.40",
    }
    arguments = [part for option in options.items() for part in option]
    result = await run_publish(tenant, make_file(tmp_path, "firefox-win32.zip"), "--package", package, *arguments)
    assert result.status == 0, result.log
    [version] = await listed(tenant, package)
    assert {name: value for name, value in version.items() if not name.startswith("INSTALLER_URL")} == {
        "PACKAGE_ID": package,
        "VERSION": "128.0.3",
        "LOCALE": "de-DE",
        "ARCHITECTURE": "x86",
        "INSTALLER_TYPE": "ZIP",
        "INSTALLER_SHA256": version["INSTALLER_SHA256"],
        "INSTALLER_SCOPE": "user",
        "UID": result.output.strip(),
        "INSTALLER_NESTED_TYPE": "MSI",
        "PRODUCTCODE": product,
        "UPGRADECODE": upgrade,
        "PACKAGE_FAMILY_NAME": "Mozilla.Firefox_n80bbvh6b1yt2",
        "CHANNEL": "beta",
        "NESTED_PACKAGE_INSTALLER_PATHS": [{"RelativeFilePath": "setup/firefox.msi"}],
    }


async def test_repeating_a_command_succeeds_and_sends_nothing(tenant: Api, package: str, tmp_path: Path) -> None:
    command = (make_file(tmp_path), "--package", package, "--version", "1", "--json")
    first, again = await run_publish(tenant, *command), await run_publish(tenant, *command)
    assert (first.status, again.status) == (0, 0)
    assert again.documents == [{**first.documents[0], "resumed_from": 100_000, "created": False, "warnings": []}]
    assert "exists already" in again.log
    assert await storage(tenant) == (100_000, 0)


async def test_a_package_that_winget_would_confuse_is_named(tenant: Api, tmp_path: Path) -> None:
    names, code = (package_id(), package_id()), "{1294A4C5-9977-480F-9497-C0EA1E630130}"
    for name in names:
        await add_package(tenant, name, package_name=name)
        file = make_file(tmp_path, f"{name}.exe")
        result = await run_publish(tenant, file, "--package", name, "--version", "1", "--product-code", code, "--json")
        assert result.status == 0, result.log
    shared = [{"field": "productcode", "value": code.lower(), "package_id": names[0]}]
    assert result.documents[0]["shared_identities"] == shared
    assert f"Warning: the package {names[0]} has the same productcode" in " ".join(result.log.split())


async def test_a_new_package_with_an_id_in_other_letter_case_is_refused(tenant: Api, tmp_path: Path) -> None:
    await add_package(tenant, "Big.Editor")
    new = ("--package-name", "Editor", "--publisher", "Big")
    result = await run_publish(tenant, make_file(tmp_path), "--package", "big.editor", "--version", "1", *new)
    assert result.status == 1
    assert "There is a package 'Big.Editor' already." in result.log
    assert await storage(tenant) == (0, 0)


async def test_files_of_several_architectures_become_installers_of_one_version(
    services: Services, tmp_path: Path
) -> None:
    tenant, name = await services.tenant(version_key="installer"), package_id()
    await add_package(tenant, name)
    files = [make_file(tmp_path, f"app-{word}.msi") for word in ("x64", "win32", "arm64")]
    result = await run_publish(tenant, *files, "--package", name, "--version", "1", "--json")
    assert result.status == 0, result.log
    digests = {version["UID"]: version["INSTALLER_SHA256"] for version in await listed(tenant, name)}
    assert [row["architecture"] for row in result.documents] == ["x64", "x86", "arm64"]
    assert [digests[row["uid"]] for row in result.documents] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]


async def test_a_rejected_file_does_not_stop_the_others(tenant: Api, package: str, tmp_path: Path) -> None:
    existing = await publish(tenant, package, "1")
    taken, free, empty = make_file(tmp_path, "a.exe"), make_file(tmp_path, "b.exe"), make_file(tmp_path, "c.exe", 0)
    versions = ("--version", "1", "--version", "2", "--version", "3")
    result = await run_publish(tenant, taken, free, empty, "--package", package, *versions, "--json")
    assert result.status == 1
    refused, published, unusable = result.documents
    assert refused["error"]["code"] == "version_exists"
    assert existing.uid in result.log
    assert unusable["error"] == {"code": "file_unusable", "detail": f"{empty} is empty."}
    assert {version["UID"] for version in await listed(tenant, package)} == {existing.uid, published["uid"]}
    assert await storage(tenant) == (len(existing.content) + 100_000, 0)


async def test_a_package_that_does_not_exist_is_added_on_request(tenant: Api, tmp_path: Path) -> None:
    name, described = package_id(), ("--package-name", "Trap", "--publisher", "Acme", "--description", "Snap.")
    file = make_file(tmp_path)
    missing = await run_publish(tenant, file, "--package", name, "--version", "1")
    assert (missing.status, missing.output) == (1, "")
    assert f"There is no package '{name}'" in missing.log
    for version in ("1", "2"):
        assert (await run_publish(tenant, file, "--package", name, "--version", version, *described)).status == 0
    added = (await catalog(tenant))[name]
    names = [added[f"PACKAGE_{field}"] for field in ("NAME", "PUBLISHER", "DESCRIPTION")]
    assert (names, added["VERSIONS"]) == (["Trap", "Acme", "Snap."], ["2", "1"])


async def test_a_wrong_password_is_reported_in_the_servers_words(tenant: Api, package: str, tmp_path: Path) -> None:
    wrong = "not the password of anybody"
    result = await run_publish(
        tenant, make_file(tmp_path), "--package", package, "--version", "1", PKGREPO_PASSWORD=wrong
    )
    answer = await tenant.anonymous().call("POST", "login", data={"username": "admin", "password": wrong})
    assert (result.status, result.output) == (1, "")
    assert result.log == f"pkgrepo: {answer.body['detail']}"


async def restricted(tenant: Api) -> dict[str, str]:
    """The environment with an API token for some packages."""
    form = {"name": "ci", "role": "publisher", "package_ids": "Acme.*"}
    token = (await tenant.call("POST", "add_token", data=form)).body["token"]
    return {"PKGREPO_USER": "", "PKGREPO_PASSWORD": "", "PKGREPO_TOKEN": token}


async def test_a_restricted_api_token_publishes_its_packages_only(services: Services, tmp_path: Path) -> None:
    tenant = await services.tenant()
    environment = await restricted(tenant)
    file, new = make_file(tmp_path), ("--package-name", "App", "--publisher", "Acme", "--version", "1")
    published = await run_publish(tenant, file, "--package", "Acme.App", *new, **environment)
    refused = await run_publish(tenant, file, "--package", "Other.App", *new, **environment)
    assert (published.status, refused.status) == (0, 1), published.log
    assert refused.log == "pkgrepo: This token may change only packages whose ids match Acme.*."
    assert environment["PKGREPO_TOKEN"] not in published.log + published.output + refused.log


async def test_a_restricted_token_sends_a_file_again_that_another_caller_began(
    services: Services, tmp_path: Path
) -> None:
    tenant, name = await services.tenant(), package_id()
    await add_package(tenant, name)
    file = make_file(tmp_path)
    content = file.read_bytes()
    installer = Installer(file, name, "1", Architecture.X64, FileType.EXE)
    begun = next(installer.file_ids(hashlib.sha256(content).hexdigest()))
    assert (await send_chunk(tenant, begun, content, 0, 1000)).status == 200
    command = (file, "--package", name, "--version", "1", "--json")
    result = await run_publish(tenant, *command, **await restricted(tenant))
    assert (result.status, result.documents[0].get("resumed_from")) == (0, 0), result.log


async def test_a_full_quota_is_reported_in_the_servers_words(services: Services, tmp_path: Path) -> None:
    tenant, name = await services.tenant(storage_quota=1000), package_id()
    await add_package(tenant, name)
    result = await run_publish(tenant, make_file(tmp_path, size=2 << 20), "--package", name, "--version", "1", "--json")
    assert result.status == 1
    assert result.documents[0]["error"]["code"] == "storage_exceeded"
    assert result.documents[0]["error"]["detail"] in result.log
