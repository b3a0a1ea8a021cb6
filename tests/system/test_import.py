"""`pkgrepo import` of winget's manifests against the real services."""

import json
from pathlib import Path

from common.tenants import VersionKey
from tests.system.publish_command import run
from tests.system.services import Services
from tests.winget_manifests import installer, make


async def test_a_manifest_is_published_with_its_installers(services: Services, tmp_path: Path) -> None:
    tenant = await services.tenant(version_key=VersionKey.INSTALLER)
    made = make(Scope="machine", InstallerSwitches={"Silent": "/S"})
    made.installers.append(installer("other.exe", b"other", "arm64", InstallerSwitches={"Log": "/L"}))
    made.content["other.exe"] = b"other"
    made.write(tmp_path)
    said = await run(tenant, tmp_path, "--installers", tmp_path / "installers", "--json", command="import")
    assert said.status == 0, said.log
    found = json.loads(said.output)
    assert [(row["architecture"], row["outcome"]) for row in found["installers"]] == [
        ("x64", "published"),
        ("arm64", "published"),
    ]
    details = [await tenant.call("GET", "get_version_details", row["uid"]) for row in found["installers"]]
    assert [(one.body["switch_Silent"], one.body["switch_Log"]) for one in details] == [("/S", ""), ("/S", "/L")]
    again = await run(tenant, tmp_path, "--installers", tmp_path, "--json", command="import")
    assert again.status == 0, again.log
    assert json.loads(again.output)["there"] == 2
