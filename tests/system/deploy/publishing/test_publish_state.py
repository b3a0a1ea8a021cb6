"""`pkgrepo publish` says where the version stands, warns, and takes values from the newest version."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.processes.cluster import Cluster
from tests.support.processes.publish_command import run_publish
from tests.support.system.publishing import add_package, package_id
from tests.support.system.releases import set_policy
from tests.support.system.services import Api, Services
from tests.support.wait import until
from upload_service.scanning.model import ScanState, scan_document


@pytest.fixture
async def package(tenant: Api) -> str:
    name = package_id()
    await add_package(tenant, name)
    return name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "setup.exe"
    path.write_bytes(b"not a program")
    return path


async def test_a_version_that_needs_an_approval_exits_with_4_unless_no_wait(
    tenant: Api, package: str, file: Path
) -> None:
    await set_policy(tenant, "pilot,everyone", {"pilot": {"approvals": 1}})
    command = (file, "--package", package, "--version", "1")
    waiting, left = await run_publish(tenant, *command), await run_publish(tenant, *command, "--no-wait")
    assert (waiting.status, left.status) == (4, 0)
    assert "Not offered to a ring yet. The ring pilot waits for: 0 of 1 approved." in waiting.log


async def test_an_infected_version_exits_with_3(cluster: Cluster, file: Path) -> None:
    api = await cluster.services.tenant()
    await add_package(api, name := package_id())
    command = (file, "--package", name, "--version", "1", "--json")
    published = await run_publish(api, *command)
    [document] = published.documents
    assert (published.status, document["state"]) == (0, "Offered to the ring everyone.")
    key = {"tenant_id": api.tenant_id, "version_uid": document["uid"]}
    found = {"scan": {**scan_document(ScanState.INFECTED, document["sha256"], datetime.now(UTC)), "reason": "Eicar"}}
    await cluster.mongo["upload"]["uploads"].update_one(key, {"$set": found})

    async def is_held() -> bool:
        return bool((await api.call("GET", "get_release", document["uid"])).body["status"] == "held")

    await until(is_held)
    again = await run_publish(api, *command)
    assert again.status == 3
    assert "Malware: no machine gets this version." in again.log


async def test_a_strange_version_and_a_missing_switch_are_warned_about(tenant: Api, package: str, file: Path) -> None:
    result = await run_publish(tenant, file, "--package", package, "--version", "1/0")
    assert result.status == 0, result.log
    assert "winget does not show this version: package_version must not hold" in result.log
    assert "An EXE without a silent switch may wait" in result.log


async def test_scope_and_switches_come_from_the_newest_version_unless_given(
    tenant: Api, package: str, file: Path
) -> None:
    given = ("--scope", "user", "--switch", "silent=/S", "--switch", "log=/L")
    first = await run_publish(tenant, file, "--package", package, "--version", "1", *given)
    second = await run_publish(tenant, file, "--package", package, "--version", "2")
    third = await run_publish(
        tenant, file, "--package", package, "--version", "3", "--scope", "machine", "--switch", "silent=/Q"
    )
    again = await run_publish(tenant, file, "--package", package, "--version", "2")
    assert (first.status, second.status, third.status, again.status) == (0, 0, 0, 0), again.log
    assert again.output == second.output
    fields = ("file_scope", "switch_Silent", "switch_Log")
    details = [(await tenant.call("GET", "get_version_details", each.output.strip())).body for each in (second, third)]
    assert [[each[name] for name in fields] for each in details] == [["user", "/S", "/L"], ["machine", "/Q", ""]]


async def test_a_token_for_other_packages_is_refused_before_the_file_is_sent(services: Services, file: Path) -> None:
    tenant = await services.tenant()
    await add_package(tenant, "Other.App")
    form = {"name": "ci", "role": "publisher", "package_ids": "Acme.*"}
    token = (await tenant.call("POST", "add_token", data=form)).body["token"]
    environment = {"PKGREPO_USER": "", "PKGREPO_PASSWORD": "", "PKGREPO_TOKEN": token}
    result = await run_publish(tenant, file, "--package", "Other.App", "--version", "1", **environment)
    assert result.status == 1
    assert "This token may change only packages whose ids match Acme.*." in result.log
    assert "sending" not in result.log
    assert (await tenant.call("GET", "get_finished_uploads")).body == []
