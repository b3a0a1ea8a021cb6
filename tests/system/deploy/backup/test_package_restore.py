"""One deleted package returns from a backup while the services run, and is offered to nobody else than before."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import FormData
from pydantic import SecretStr

from auth_service.audit.store import Selection
from catalog_service.model.packages import PackageExists
from common.errors import StorageExceeded
from common.mongo import open_database
from deploy.backup import package_restorer
from deploy.backup.creator import BackupCreator
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import CopyOutcome, store_copy
from deploy.backup.package_restorer import PackageRestorer
from deploy.backup.records import BackupProblem
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses, open_storage
from deploy.operator.tenants import open_operator_audit
from tests.support.api import read_answer
from tests.support.factories import KEY, KEYS
from tests.support.processes.backup import RecordedProgress
from tests.support.services.catalog import EXTERNAL, picture
from tests.support.system.publishing import (
    INSTALLER,
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
    """Running services."""

    services: Services
    where: StoreAddresses

    @property
    def mongo_url(self) -> str:
        return self.where.addresses.mongo_url


@dataclass(frozen=True)
class Package:
    """The only package of a tenant, its versions, and a folder for backups."""

    installation: Installation
    folder: Path
    api: Api
    name: str
    versions: Sequence[Published]

    async def call(self, method: str, operation: str, *segments: str, **form: str) -> Any:
        return await done(self.api, method, operation, *segments, **form)

    async def back_up(self) -> str:
        where = self.installation.where
        backup = BackupCreator(BackupFolder(self.folder), open_storage(where.installers), RecordedProgress(), False)
        with backup.folder.locked():
            await backup.run(where)
        return backup.name

    async def delete(self) -> None:
        await self.call("DELETE", "delete_package", self.name)

    async def restore(self, name: str = "", **options: Any) -> PackageRestorer:
        where, backups = self.installation.where, BackupFolder(self.folder)
        target = (self.api.tenant_id, name or self.name, open_storage(where.installers), RecordedProgress())
        restorer = PackageRestorer(backups, backups.load(None), *target, **options)
        await restorer.run(where)
        return restorer

    async def offered(self, token: str = "") -> set[str]:
        """The versions that a client gets."""
        packages: Any = await catalog(self.api.anonymous(), data={"auth_token": token})
        return set(packages[self.name]["VERSIONS"]) if self.name in packages else set()

    async def address(self, version: Published) -> str:
        return (await version_of(self.api, version))["INSTALLER_URL"]

    async def storage(self) -> tuple[int, bool]:
        """The used bytes, and whether all of them are explained by files."""
        async with open_database(self.installation.mongo_url, "upload") as database:
            drift = await Reconciliation(MongoQuotaStore(database), pause=0).find_drift(self.api.tenant_id)
        return int((await self.call("GET", "server_information"))["storage_used"]), drift is None


MakePackage = Callable[..., Awaitable[Package]]


@pytest.fixture(scope="module")
async def installation(own_mongo_url: str, redis_url: str, rabbitmq_url: str) -> AsyncIterator[Installation]:
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with all_services(Path(folder), own_mongo_url, redis_url, rabbitmq_url) as services:
            addresses = Addresses("", own_mongo_url, redis_url)
            yield Installation(services, StoreAddresses(addresses, services.installers, SecretStr(KEY), KEYS))


@pytest.fixture
def make_package(installation: Installation, tmp_path: Path) -> MakePackage:
    """Creates a tenant with a package."""

    async def make(*versions: str, content: bytes | None = None, **tenant: Any) -> Package:
        api, name = await installation.services.tenant(**tenant), package_id()
        await add_package(api, name)
        published = [await publish(api, name, version, content=content) for version in versions]
        return Package(installation, tmp_path / "backups", api, name, published)

    return make


@pytest.fixture
async def package(make_package: MakePackage) -> Package:
    """A package with one version, which is in a backup."""
    made = await make_package("1.0")
    await made.back_up()
    return made


async def done(api: Api, method: str, operation: str, *segments: str, **form: str) -> Any:
    answer = await api.call(method, operation, *segments, data=form)
    assert answer.status in {200, 201}, answer.body
    return answer.body


async def new_approver(api: Api) -> Api:
    await done(api, "POST", "add_user", username="bob", password=PASSWORD, role="approver")
    return await api.signed_in("bob")


async def test_a_deleted_package_returns_with_versions_logo_and_files(make_package: MakePackage) -> None:
    package = await make_package("1.0", "2.0")
    logo = FormData()
    logo.add_field("Logo", picture("PNG", (8, 8)), filename="logo.png")
    assert (await package.api.call("PATCH", "edit_package", package.name, data=logo)).status == 200
    external = {**INSTALLER, **EXTERNAL, "package_version": "3.0"}
    await package.call("POST", "add_package_version", package.name, **external)
    before, storage = (await catalog(package.api))[package.name], await package.storage()
    await package.back_up()
    await package.delete()
    assert package.name not in await catalog(package.api)

    restored = await package.restore()

    assert (await catalog(package.api))[package.name] == before
    for version in package.versions:
        assert await download(package.api, await package.address(version)) == version.content
    assert await package.storage() == storage
    assert (len(restored.versions), restored.lacking) == (3, {})
    entry = (await package.call("GET", "get_audit_log"))[0]
    assert (entry["operation"], entry["target"]["package_id"]) == ("package_restore", package.name)
    assert entry["user"].startswith("operator/")


@pytest.mark.full
async def test_download_counts_return_with_their_versions(make_package: MakePackage) -> None:
    package = await make_package("1.0")
    await download(package.api, await package.address(package.versions[0]))

    async def downloads() -> int:
        return sum(row["downloads"] for row in await package.call("GET", "get_statistics"))

    async def is_counted() -> bool:
        return await downloads() == 1

    await until(is_counted)
    await package.back_up()
    await package.delete()
    assert await downloads() == 0
    await package.restore()
    assert await downloads() == 1


async def test_a_package_that_exists_is_not_overwritten(package: Package) -> None:
    await package.call("PATCH", "edit_package", package.name, package_name="Another name")
    with pytest.raises(PackageExists):
        await package.restore()
    assert (await catalog(package.api))[package.name]["PACKAGE_NAME"] == "Another name"
    await package.delete()
    twin = package.name.swapcase()  # whose id looks the same
    await add_package(package.api, twin)
    with pytest.raises(PackageExists, match=twin):
        await package.restore()
    assert (await package.call("GET", "get_audit_log"))[0]["operation"] == "add_package"  # Nothing was begun.


async def test_a_package_added_during_the_copy_stays_and_the_copies_are_removed(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    await package.delete()

    async def copy_and_add(*arguments: Any) -> CopyOutcome:
        await add_package(package.api, package.name)
        return await store_copy(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(package_restorer, "store_copy", copy_and_add)
        with pytest.raises(PackageExists):
            await package.restore()
    assert (await catalog(package.api))[package.name]["VERSIONS"] == []
    assert await package.storage() == (0, True)
    assert not [*package.installation.services.installers.glob(f"{package.api.tenant_id}/*.exe")]
    await package.delete()
    await package.restore()
    [version] = package.versions
    assert await download(package.api, await package.address(version)) == version.content


async def test_a_package_that_the_backup_lacks_is_named(package: Package) -> None:
    with pytest.raises(BackupProblem, match=f"has no package Acme.Nothing of the tenant {package.api.tenant_id}"):
        await package.restore("Acme.Nothing")


@pytest.mark.parametrize("stop", ["hold", "delete"])
async def test_a_version_stopped_after_the_backup_returns_withdrawn(package: Package, stop: str) -> None:
    [published] = package.versions
    approver = await new_approver(package.api)
    if stop == "hold":
        await done(approver, "POST", "hold_version", published.uid, reason="It encrypts files.")
    else:
        await package.call("DELETE", "delete_package_version", package.name, versions_uids=published.uid)
    await package.delete()

    (version,) = (await package.restore()).versions

    assert (version.status, "after the backup" in version.release.reason.text) == ("rolled_back", True)
    assert await package.offered() == set()
    async with package.api.session.get(await package.address(published)) as response:
        assert response.status == 404
    await done(approver, "POST", "resume_version", published.uid)
    assert await package.offered() == {"1.0"}


async def test_an_infected_installer_stays_infected(make_package: MakePackage) -> None:
    package = await make_package("1.0")
    [version] = package.versions
    infected = {"scan": scan_document(ScanState.INFECTED, version.sha256, datetime.now(UTC))}
    async with open_database(package.installation.mongo_url, "upload") as database:
        await database["uploads"].update_one({"tenant_id": package.api.tenant_id}, {"$set": infected})
    await package.back_up()
    await package.delete()
    await package.restore()
    async with package.api.session.get(await package.address(version)) as response:
        answer = await read_answer(response)
    assert (answer.status, answer.body["code"]) == (404, "installer_infected")


@pytest.mark.full
async def test_a_restored_version_is_offered_to_the_same_rings(make_package: MakePackage) -> None:
    package = await make_package()
    await package.call("PATCH", "edit_settings", rings=",".join(RINGS))
    pilot, everyone, held = [await publish(package.api, package.name, version) for version in ("1", "2", "3")]
    tokens = {}
    for ring in RINGS:
        client = await package.call("POST", "add_client", client_name=ring)
        await package.call("PATCH", "edit_client", client["client_id"], ring=ring)
        tokens[ring] = client["auth_token"]
    approver = await new_approver(package.api)
    for version in (everyone, held):
        await done(approver, "POST", "promote_version", version.uid, ring="everyone")
    await done(approver, "POST", "hold_version", held.uid, reason="It deletes files.")
    async with open_database(package.installation.mongo_url, "catalog") as database:
        waiting = {"tenant_id": package.api.tenant_id, "release.unaudited.0": {"$exists": True}}

        async def all_recorded() -> bool:  # Else a deletion takes a minute.
            return not await database["versions"].count_documents(waiting)

        await until(all_recorded)
    await package.back_up()
    await package.delete()
    restored = await package.restore()
    offered = {ring: await package.offered(token) for ring, token in tokens.items()}
    assert offered == {"pilot": {"1", "2"}, "broad": {"2"}, "everyone": {"2"}}
    assert {version.uid: version.status for version in restored.versions} == {
        pilot.uid: "active",
        everyone.uid: "active",
        held.uid: "held",
    }


async def test_a_package_set_inactive_after_the_backup_stays_inactive(package: Package) -> None:
    await package.call("PATCH", "set_package_active", package.name, package_active="0")
    await package.delete()
    assert not (await package.restore()).is_active
    assert package.name not in await catalog(package.api)


async def test_all_versions_are_withdrawn_if_the_audit_log_is_another(package: Package) -> None:
    await package.delete()
    async with open_database(package.installation.mongo_url, "auth") as database:
        await database["audit_log"].delete_many({"tenant_id": package.api.tenant_id})
    restored = await package.restore()
    assert [version.status for version in restored.versions] == ["rolled_back"]
    assert await package.offered() == set()


def fail(patch: pytest.MonkeyPatch, step: str, call: int = 1) -> None:
    """Let a step of a restore fail from this call on."""
    original, calls = attrgetter(step)(package_restorer), count(1)

    def run(*arguments: Any, **options: Any) -> Any:
        if next(calls) >= call:
            raise ConnectionAbortedError
        return original(*arguments, **options)

    patch.setattr(f"{package_restorer.__name__}.{step}", run)


STEPS = (("MongoQuotaStore.charge", 2), ("store_copy", 2), ("MongoRevisions", 1), ("migrate_imported", 1))


@pytest.mark.parametrize(
    "steps", [STEPS[:1], pytest.param(STEPS, marks=pytest.mark.full)], ids=["sample", "every step"]
)
async def test_an_interrupted_restore_resumes_and_charges_each_file_once(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, steps: Sequence[tuple[str, int]]
) -> None:
    package = await make_package("1.0", "2.0")
    version, storage = package.versions[1], await package.storage()
    await package.back_up()
    for step, call in steps:
        await package.delete()
        with monkeypatch.context() as patched:
            fail(patched, step, call)
            with pytest.raises(ConnectionAbortedError):
                await package.restore()
        assert package.name not in await catalog(package.api) or step == "migrate_imported"
        await package.restore()
        assert await package.storage() == storage, step
        assert await download(package.api, await package.address(version)) == version.content


async def test_a_package_deleted_before_its_restore_has_ended_is_charged(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await package.storage()
    await package.delete()
    with monkeypatch.context() as patched, suppress(ConnectionAbortedError):
        fail(patched, "migrate_imported")
        await package.restore()
    await package.delete()
    await package.restore()
    assert await package.storage() == storage


async def test_a_package_above_the_quota_is_refused_and_leaves_nothing(make_package: MakePackage) -> None:
    package = await make_package("1.0", "2.0", content=bytes(1000), storage_quota=2500)
    await package.back_up()
    await package.delete()
    assert (await send_chunk(package.api, "another", bytes(1000), 0, 500)).status == 200
    with pytest.raises(StorageExceeded, match=r"have 2000 bytes.*pkgrepo tenant edit"):
        await package.restore()
    assert await package.storage() == (0, True)
    await package.installation.services.operator.tenants.edit(package.api.tenant_id, {"storage_quota": 3000})
    await package.restore()
    assert await package.storage() == (2000, True)


async def test_a_resumed_restore_above_the_quota_can_be_resumed_again(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = await make_package("1.0", "2.0", content=bytes(1000), storage_quota=3000)
    tenants = package.installation.services.operator.tenants
    await package.back_up()
    await package.delete()
    with monkeypatch.context() as patched:
        fail(patched, "MongoQuotaStore.charge")
        with pytest.raises(ConnectionAbortedError):
            await package.restore()
    async with open_database(package.installation.mongo_url, "upload") as database:
        ledgers = Reconciliation(MongoQuotaStore(database), pause=0)
        for drift in await ledgers.find_all_drift(package.api.tenant_id):
            await ledgers.repair(drift)
    await tenants.edit(package.api.tenant_id, {"storage_quota": 1500})
    with pytest.raises(StorageExceeded):
        await package.restore()
    await tenants.edit(package.api.tenant_id, {"storage_quota": 3000})
    await package.restore()
    assert await package.storage() == (2000, True)


async def test_a_damaged_installer_is_left_out_on_request_only(make_package: MakePackage) -> None:
    package = await make_package("1.0", "2.0")
    whole, damaged = package.versions
    await package.back_up()
    await package.delete()
    (file,) = (path for path in package.folder.glob("files/*/*") if path.read_bytes() == damaged.content)
    file.write_bytes(bytes(len(damaged.content)))
    with pytest.raises(BackupProblem, match=f"the backup is damaged: {package.api.tenant_id}/{file.name}; repair"):
        await package.restore()
    assert await package.storage() == (0, True)
    restored = await package.restore(without_damaged=True)
    assert ([version.uid for version in restored.versions], [*restored.lacking.values()]) == ([whole.uid], ["altered"])
    assert (await catalog(package.api))[package.name]["VERSIONS"] == ["1.0"]
    assert await package.storage() == (len(whole.content), True)


async def test_a_changed_backup_restores_no_package(package: Package) -> None:
    await package.delete()
    next(package.folder.glob("*/manifest.seal")).write_text("0" * 64)
    with pytest.raises(BackupProblem, match="was changed or renamed after it was made"):
        await package.restore()
    await package.restore(without_seal=True)
    async with open_operator_audit(package.installation.where) as audit:
        entries = audit.audit.select(package.api.tenant_id, Selection(operations=("package_restore",)))
        assert [entry.entry.target["seal"] async for entry in entries if entry] == ["not verified"]
