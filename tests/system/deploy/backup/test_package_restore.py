"""One deleted package returns from a backup while the services run, and is offered to nobody else than before."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiohttp import FormData
from pydantic import SecretStr

from auth_service.audit.store import Selection
from catalog_service.model.packages import PackageExists
from common.errors import StorageExceeded
from common.mongo import open_database
from deploy.backup.creator import BackupCreator
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import CopyOutcome, store_copy
from deploy.backup.package_restorer import PackageRestorer
from deploy.backup.records import BackupProblem
from deploy.local import servers
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses, open_storage
from deploy.operator.tenants import open_operator_audit
from tests.support.api import Answer, read_answer
from tests.support.factories import KEY, KEYS
from tests.support.processes.backup import RecordedProgress
from tests.support.services.catalog import picture
from tests.support.system.publishing import (
    Published,
    add_package,
    catalog,
    download,
    package_id,
    publish,
    send_chunk,
    version_of,
)
from tests.support.system.services import PASSWORD, Api, Services, all_services
from tests.support.wait import until
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.scanning.model import ScanState, scan_document

RINGS = ("pilot", "broad", "everyone")


@dataclass(frozen=True)
class Installation:
    """Running services, and a folder for their backups."""

    services: Services
    where: StoreAddresses
    folder: Path

    @property
    def backups(self) -> BackupFolder:
        return BackupFolder(self.folder)

    async def back_up(self) -> str:
        storage = open_storage(self.where.installers)
        backup = BackupCreator(self.backups, storage, RecordedProgress(), check=False)
        with self.backups.locked():
            await backup.run(self.where)
        return backup.name

    async def restore(self, api: Api, name: str, **options: Any) -> PackageRestorer:
        storage, backup = open_storage(self.where.installers), self.backups.load(options.pop("at", None))
        restorer = PackageRestorer(self.backups, backup, api.tenant_id, name, storage, RecordedProgress(), **options)
        await restorer.run(self.where)
        return restorer

    async def quota_is_correct(self, api: Api) -> bool:
        async with open_database(self.where.addresses.mongo_url, "upload") as database:
            return await Reconciliation(MongoQuotaStore(database), pause=0).find_drift(api.tenant_id) is None

    async def repair_quota(self, api: Api) -> None:
        async with open_database(self.where.addresses.mongo_url, "upload") as database:
            ledgers = Reconciliation(MongoQuotaStore(database), pause=0)
            for drift in await ledgers.find_all_drift(api.tenant_id):
                await ledgers.repair(drift)


@pytest.fixture(scope="module")
async def own_services(redis_url: str, rabbitmq_url: str) -> AsyncIterator[Installation]:
    """Services with their own MongoDB, because a backup has everything in it."""
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        (folder / "mongodb").mkdir()
        async with (
            servers.mongod(folder / "mongodb") as mongo_url,
            all_services(folder, mongo_url, redis_url, rabbitmq_url) as services,
        ):
            addresses = Addresses("", mongo_url, redis_url)
            where = StoreAddresses(addresses, services.installers, SecretStr(KEY), KEYS)
            yield Installation(services, where, folder / "backups")


@pytest.fixture
def installation(own_services: Installation, tmp_path: Path) -> Installation:
    return replace(own_services, folder=tmp_path / "backups")


async def call(api: Api, method: str, operation: str, *segments: str, **form: str) -> Any:
    answer = await api.call(method, operation, *segments, data=form)
    assert answer.status in {200, 201}, answer.body
    return answer.body


async def fetch(api: Api, address: str) -> Answer:
    async with api.session.get(address) as response:
        return await read_answer(response)


async def storage_used(api: Api) -> int:
    return int((await call(api, "GET", "server_information"))["storage_used"])


async def test_a_deleted_package_returns_with_versions_logo_and_files(installation: Installation) -> None:
    api, name = await installation.services.tenant(), package_id()
    form = FormData(
        {"package_id": name, "package_name": "Trap", "package_publisher": "Acme", "package_description": ""}
    )
    form.add_field("Logo", picture("PNG", (8, 8)), filename="logo.png")
    assert (await api.call("POST", "add_package", data=form)).status == 200
    published = [await publish(api, name, version) for version in ("1.0", "2.0")]
    external = {"installer_url": "https://example.com/setup.exe", "installer_sha256": "ab" * 32}
    fields = {"file_architect": "x64", "file_type": "EXE", "file_scope": "machine", "package_version": "3.0"}
    await call(api, "POST", "add_package_version", name, **fields, **external)
    before, used = (await catalog(api))[name], await storage_used(api)
    await installation.back_up()
    await call(api, "DELETE", "delete_package", name)
    assert name not in await catalog(api)

    restored = await installation.restore(api, name)

    assert (await catalog(api))[name] == before
    for version in published:
        assert await download(api, (await version_of(api, version))["INSTALLER_URL"]) == version.content
    assert (await storage_used(api), await installation.quota_is_correct(api)) == (used, True)
    assert (len(restored.versions), restored.lacking) == (3, {})
    entry = (await call(api, "GET", "get_audit_log"))[0]
    assert (entry["operation"], entry["target"]["package_id"]) == ("package_restore", name)
    assert entry["user"].startswith("operator/")


@pytest.mark.full
async def test_download_counts_return_with_their_versions(installation: Installation) -> None:
    api, published = await a_package(installation)
    await download(api, (await version_of(api, published))["INSTALLER_URL"])

    async def downloads() -> int:
        return sum(row["downloads"] for row in await call(api, "GET", "get_statistics"))

    async def is_counted() -> bool:
        return await downloads() == 1

    await until(is_counted)
    await installation.back_up()
    await call(api, "DELETE", "delete_package", published.package_id)
    assert await downloads() == 0
    await installation.restore(api, published.package_id)
    assert await downloads() == 1


async def test_a_package_that_exists_is_not_overwritten(installation: Installation) -> None:
    api, published = await a_package(installation)
    await installation.back_up()
    await call(api, "PATCH", "edit_package", published.package_id, package_name="Another name")
    with pytest.raises(PackageExists):
        await installation.restore(api, published.package_id)
    assert (await catalog(api))[published.package_id]["PACKAGE_NAME"] == "Another name"


async def test_a_package_whose_id_looks_the_same_stops_a_restore_at_once(installation: Installation) -> None:
    api, published = await a_package(installation)
    await installation.back_up()
    await call(api, "DELETE", "delete_package", published.package_id)
    twin = published.package_id.swapcase()
    await add_package(api, twin)
    with pytest.raises(PackageExists, match=twin):
        await installation.restore(api, published.package_id)
    assert await storage_used(api) == 0
    assert (await call(api, "GET", "get_audit_log"))[0]["operation"] == "add_package"


async def test_a_package_added_during_the_copy_stays_and_the_copies_are_removed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, published = await a_package(installation)
    await installation.back_up()
    await call(api, "DELETE", "delete_package", published.package_id)

    async def copy_and_add(*arguments: Any) -> CopyOutcome:
        await add_package(api, published.package_id)
        return await store_copy(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("deploy.backup.package_restorer.store_copy", copy_and_add)
        with pytest.raises(PackageExists):
            await installation.restore(api, published.package_id)
    assert (await catalog(api))[published.package_id]["VERSIONS"] == []
    assert (await storage_used(api), await installation.quota_is_correct(api)) == (0, True)
    assert not [*installation.services.installers.glob(f"{api.tenant_id}/*.exe")]
    await call(api, "DELETE", "delete_package", published.package_id)
    await installation.restore(api, published.package_id)
    assert await download(api, (await version_of(api, published))["INSTALLER_URL"]) == published.content


async def test_a_package_that_the_backup_lacks_is_named(installation: Installation) -> None:
    api, _ = await a_package(installation)
    await installation.back_up()
    with pytest.raises(BackupProblem, match=f"has no package Acme.Nothing of the tenant {api.tenant_id}"):
        await installation.restore(api, "Acme.Nothing")


async def test_a_version_stopped_after_the_backup_returns_withdrawn(installation: Installation) -> None:
    api, published = await a_package(installation)
    approver = await new_approver(api)
    await installation.back_up()
    await call(approver, "POST", "hold_version", published.uid, reason="It encrypts files.")
    await call(api, "DELETE", "delete_package", published.package_id)

    (version,) = (await installation.restore(api, published.package_id)).versions

    assert (version.status, "after the backup" in version.release.reason.text) == ("rolled_back", True)
    assert published.package_id not in await catalog(api.anonymous())
    async with api.session.get((await version_of(api, published))["INSTALLER_URL"]) as response:
        assert response.status == 404
    await call(approver, "POST", "resume_version", published.uid)
    assert published.package_id in await catalog(api.anonymous())


async def test_an_infected_installer_stays_infected(installation: Installation) -> None:
    api, published = await a_package(installation)
    infected = {"scan": scan_document(ScanState.INFECTED, published.sha256, datetime.now(UTC))}
    async with open_database(installation.where.addresses.mongo_url, "upload") as database:
        await database["uploads"].update_one({"tenant_id": api.tenant_id}, {"$set": infected})
    await installation.back_up()
    await call(api, "DELETE", "delete_package", published.package_id)
    await installation.restore(api, published.package_id)
    answer = await fetch(api, (await version_of(api, published))["INSTALLER_URL"])
    assert (answer.status, answer.body["code"]) == (404, "installer_infected")


@pytest.mark.full
async def test_a_restored_version_is_offered_to_the_same_rings(installation: Installation) -> None:
    api, name = await installation.services.tenant(), package_id()
    await add_package(api, name)
    await call(api, "PATCH", "edit_settings", rings=",".join(RINGS))
    uids = {version: (await publish(api, name, version)).uid for version in ("1", "2", "3", "4", "5")}
    clients = {}
    for ring in RINGS:
        client = await call(api, "POST", "add_client", client_name=ring)
        await call(api, "PATCH", "edit_client", client["client_id"], ring=ring)
        clients[ring] = client["auth_token"]
    approver = await new_approver(api)
    for version in ("2", "3", "4", "5"):
        await call(approver, "POST", "promote_version", uids[version], ring="everyone")
    await call(approver, "POST", "hold_version", uids["3"], reason="It deletes files.")

    async def offered() -> dict[str, set[str]]:
        packages = {ring: await catalog(api.anonymous(), data={"auth_token": clients[ring]}) for ring in RINGS}
        return {ring: set(found.get(name, {}).get("VERSIONS", ())) for ring, found in packages.items()}  # type: ignore[call-overload]

    async with open_database(installation.where.addresses.mongo_url, "catalog") as database:
        waiting = {"tenant_id": api.tenant_id, "release.unaudited.0": {"$exists": True}}

        async def all_recorded() -> bool:  # Else a deletion takes a minute.
            return not await database["versions"].count_documents(waiting)

        await until(all_recorded)
    await installation.back_up()
    await call(approver, "POST", "hold_version", uids["4"], reason="It encrypts files.")
    await call(api, "DELETE", "delete_package_version", name, versions_uids=uids["5"])
    before = await offered()
    assert before == {"pilot": {"1", "2"}, "broad": {"2"}, "everyone": {"2"}}
    await call(api, "DELETE", "delete_package", name)

    restored = await installation.restore(api, name)

    assert await offered() == before
    stopped = {version.version: version.status for version in restored.versions if version.is_withdrawn}
    assert stopped == {"3": "held", "4": "rolled_back", "5": "rolled_back"}
    for version in ("3", "4", "5"):
        address = (await call(api, "GET", "get_specific_package_version", uids[version]))["INSTALLER_URL"]
        async with api.session.get(address) as response:
            assert (version, response.status) == (version, 404)
    await call(approver, "POST", "resume_version", uids["4"])
    assert await offered() == {"pilot": {"1", "2", "4"}, "broad": {"2"}, "everyone": {"2"}}


async def test_a_package_set_inactive_after_the_backup_stays_inactive(installation: Installation) -> None:
    api, published = await a_package(installation)
    await installation.back_up()
    await call(api, "PATCH", "set_package_active", published.package_id, package_active="0")
    await call(api, "DELETE", "delete_package", published.package_id)
    assert not (await installation.restore(api, published.package_id)).is_active
    assert published.package_id not in await catalog(api)


async def test_all_versions_are_withdrawn_if_the_audit_log_is_another(installation: Installation) -> None:
    api, published = await a_package(installation)
    await installation.back_up()
    await call(api, "DELETE", "delete_package", published.package_id)
    async with open_database(installation.where.addresses.mongo_url, "auth") as database:
        await database["audit_log"].delete_many({"tenant_id": api.tenant_id})
    restored = await installation.restore(api, published.package_id)
    assert [version.status for version in restored.versions] == ["rolled_back"]
    assert published.package_id not in await catalog(api.anonymous())


ALL_STEPS = ("store_copy", "MongoQuotaStore.charge", "MongoRevisions", "migrate_imported")


@pytest.mark.parametrize(
    "steps", [ALL_STEPS[1:2], pytest.param(ALL_STEPS, marks=pytest.mark.full)], ids=["sample", "every step"]
)
async def test_an_interrupted_restore_resumes_and_charges_each_file_once(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, steps: Sequence[str]
) -> None:
    api, name = await installation.services.tenant(), package_id()
    await add_package(api, name)
    published = [await publish(api, name, version) for version in ("1.0", "2.0")]
    used = await storage_used(api)
    await installation.back_up()
    for step in steps:
        await call(api, "DELETE", "delete_package", name)
        with monkeypatch.context() as patched:
            patched.setattr(f"deploy.backup.package_restorer.{step}", second_call_fails(step))
            with pytest.raises(ConnectionAbortedError):
                await installation.restore(api, name)
        assert name not in await catalog(api) or step == "migrate_imported"
        await installation.restore(api, name)
        assert (await storage_used(api), await installation.quota_is_correct(api)) == (used, True), step
        assert await download(api, (await version_of(api, published[1]))["INSTALLER_URL"]) == published[1].content


async def test_a_package_deleted_before_its_restore_has_ended_is_charged(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, published = await a_package(installation)
    used = await storage_used(api)
    await installation.back_up()
    for end in ("migrate_imported", ""):
        await call(api, "DELETE", "delete_package", published.package_id)
        with monkeypatch.context() as patched, suppress(ConnectionAbortedError):
            if end:
                patched.setattr(f"deploy.backup.package_restorer.{end}", second_call_fails(end))
            await installation.restore(api, published.package_id)
    assert (await storage_used(api), await installation.quota_is_correct(api)) == (used, True)


async def test_a_package_above_the_quota_is_refused_and_leaves_nothing(installation: Installation) -> None:
    api, name = await installation.services.tenant(storage_quota=2500), package_id()
    await add_package(api, name)
    for version in ("1.0", "2.0"):
        await publish(api, name, version, content=bytes(1000))
    await installation.back_up()
    await call(api, "DELETE", "delete_package", name)
    assert (await send_chunk(api, "another", bytes(1000), 0, 500)).status == 200
    with pytest.raises(StorageExceeded, match=r"have 2000 bytes.*pkgrepo tenant edit"):
        await installation.restore(api, name)
    assert (await storage_used(api), await installation.quota_is_correct(api)) == (0, True)
    await installation.services.operator.tenants.edit(api.tenant_id, {"storage_quota": 3000})
    await installation.restore(api, name)
    assert (await storage_used(api), await installation.quota_is_correct(api)) == (2000, True)


async def test_a_resumed_restore_above_the_quota_can_be_resumed_again(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, name = await installation.services.tenant(storage_quota=3000), package_id()
    await add_package(api, name)
    for version in ("1.0", "2.0"):
        await publish(api, name, version, content=bytes(1000))
    await installation.back_up()
    await call(api, "DELETE", "delete_package", name)
    with monkeypatch.context() as patched:
        patched.setattr(MongoQuotaStore, "charge", AsyncMock(side_effect=ConnectionAbortedError))
        with pytest.raises(ConnectionAbortedError):
            await installation.restore(api, name)
    await installation.repair_quota(api)
    await installation.services.operator.tenants.edit(api.tenant_id, {"storage_quota": 1500})
    with pytest.raises(StorageExceeded):
        await installation.restore(api, name)
    await installation.services.operator.tenants.edit(api.tenant_id, {"storage_quota": 3000})
    await installation.restore(api, name)
    assert (await storage_used(api), await installation.quota_is_correct(api)) == (2000, True)


async def test_a_damaged_installer_is_left_out_on_request_only(installation: Installation) -> None:
    api, name = await installation.services.tenant(), package_id()
    await add_package(api, name)
    whole, damaged = [await publish(api, name, version) for version in ("1.0", "2.0")]
    await installation.back_up()
    await call(api, "DELETE", "delete_package", name)
    (file,) = (path for path in installation.folder.glob("files/*/*") if path.read_bytes() == damaged.content)
    file.write_bytes(bytes(len(damaged.content)))
    with pytest.raises(BackupProblem, match=f"the backup is damaged: {api.tenant_id}/{file.name}; repair"):
        await installation.restore(api, name)
    assert await installation.quota_is_correct(api)
    restored = await installation.restore(api, name, without_damaged=True)
    assert ([version.uid for version in restored.versions], [*restored.lacking.values()]) == ([whole.uid], ["altered"])
    assert (await catalog(api))[name]["VERSIONS"] == ["1.0"]
    assert await installation.quota_is_correct(api)


async def test_a_changed_backup_restores_no_package(installation: Installation) -> None:
    api, published = await a_package(installation)
    at = await installation.back_up()
    await call(api, "DELETE", "delete_package", published.package_id)
    (installation.folder / at / "manifest.seal").write_text("0" * 64)
    with pytest.raises(BackupProblem, match="was changed or renamed after it was made"):
        await installation.restore(api, published.package_id)
    await installation.restore(api, published.package_id, without_seal=True)
    async with open_operator_audit(installation.where) as audit:
        entries = audit.audit.select(api.tenant_id, Selection(operation="package_restore"))
        assert [entry.entry.target["seal"] async for entry in entries if entry] == ["not verified"]


async def a_package(installation: Installation) -> tuple[Api, Published]:
    """A tenant, and its only version."""
    api, name = await installation.services.tenant(), package_id()
    await add_package(api, name)
    return api, await publish(api, name)


async def new_approver(api: Api) -> Api:
    await call(api, "POST", "add_user", username="bob", password=PASSWORD, role="approver")
    return await api.signed_in("bob")


def second_call_fails(step: str) -> Callable[..., Any]:
    """The function of this name, whose second call fails; the only call of the two last ones."""
    from deploy.backup import package_restorer  # noqa: PLC0415

    function: Any = package_restorer
    for part in step.split("."):
        function = getattr(function, part)
    calls: list[object] = [] if step in {"store_copy", "MongoQuotaStore.charge"} else [step]

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise ConnectionAbortedError
        return function(*arguments, **options)

    return failing
