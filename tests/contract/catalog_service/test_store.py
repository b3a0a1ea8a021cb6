"""The stores of catalog_service: the database decides races, and every filter names the tenant."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, UpgradeBehavior
from catalog_service.model.installers import FinishedUpload, InstallerFile
from catalog_service.model.manifest import VersionManifest
from catalog_service.model.packages import (
    Order,
    Package,
    PackageChanges,
    PackageExists,
    PackageNotFound,
    PackageQuery,
    VersionExists,
    VersionNotFound,
)
from catalog_service.model.versions import (
    Dependencies,
    HiddenVersion,
    PackageDependency,
    PackageVersion,
    PendingVersion,
    Switches,
    VersionName,
    document_of,
    version_of,
)
from catalog_service.releases.gates import Policy, RetentionRule
from catalog_service.releases.store import LastSigner
from catalog_service.store import INDEXES, MongoCatalogStore
from common.mongo import MongoDatabase
from tests.support.databases import own_database
from tests.support.factories import make_tenant
from tests.support.services.stand_ins import DIGEST
from tests.support.services.tenant_first import TenantFilterCheck

FILE = InstallerFile(4096, DIGEST)


@dataclass(frozen=True)
class Stores:
    """The stores on a separate database, with one tenant."""

    catalog: MongoCatalogStore
    database: MongoDatabase
    filters: TenantFilterCheck
    tenant_id: str = field(default_factory=lambda: make_tenant().tenant_id)

    async def active(self, **fields: Any) -> PackageVersion:
        """A version with its file."""
        version = make_version(**fields)
        await self.catalog.versions.reserve(self.pending(version), version.version)
        assert await self.catalog.versions.activate(self.tenant_id, version, FILE)
        return replace(version, size=FILE.size, sha256=FILE.sha256)

    async def packages(self) -> list[Package]:
        batches = self.catalog.packages.read(self.tenant_id, None, without="manifest")
        return [package async for packages in batches for package in packages]

    def pending(self, version: PackageVersion, package_uid: str = "a package") -> PendingVersion:
        return PendingVersion(self.tenant_id, package_uid, version)


@pytest.fixture(scope="module")
async def opened(mongo_url: str) -> AsyncIterator[tuple[MongoDatabase, TenantFilterCheck]]:
    filters = TenantFilterCheck()
    async with own_database(mongo_url, indexes=INDEXES, event_listeners=[filters]) as database:
        yield database, filters


@pytest.fixture
def stores(opened: tuple[MongoDatabase, TenantFilterCheck]) -> Stores:
    database, filters = opened
    return Stores(MongoCatalogStore(database, uploads_age=3600), database, filters)


def make_package(**fields: Any) -> Package:
    return Package(
        **{"package_id": "acme.editor", "package_uid": str(uuid4()), "name": "Editor", "publisher": "Acme", **fields}
    )


def make_version(**fields: Any) -> PackageVersion:
    return PackageVersion(
        **{
            "uid": str(uuid4()),
            "package_id": "acme.editor",
            "version": "1.0",
            "architecture": Architecture.X64,
            "installer_type": FileType.MSI,
            "scope": Scope.MACHINE,
            "server_filename": "a.msi",
            **fields,
        }
    )


def make_upload(server_filename: str = "a.msi") -> FinishedUpload:
    return FinishedUpload(server_filename, "setup", 4096, DIGEST, datetime(2026, 1, 2, tzinfo=UTC))


def test_a_version_is_read_as_it_was_written() -> None:
    version = make_version(
        locale=Locale.KO_KR,
        channel="beta",
        nested_type=FileType.WIX,
        nested_paths=("a\\b.msi",),
        product_code="{…}",
        upgrade_code="{…}",
        package_family_name="Acme.Editor",
        switches=Switches(silent="/quiet", repair="/repair"),
        upgrades=UpgradeBehavior.DENY,
        dependencies=Dependencies(("a",), ("b",), ("c",), (PackageDependency("d", "1"),)),
        manifest=VersionManifest(release_notes="New.", commands=("edit",), repair_behavior="modify"),
        size=1,
        sha256=DIGEST,
    )

    external = replace(version, server_filename="", installer_url="https://downloads.example.com/editor.msi")
    for written in (version, external):
        assert version_of(document_of(written)) == written


async def test_one_of_fifty_racing_packages_with_one_id_is_added(stores: Stores) -> None:
    packages = [make_package(name=str(number)) for number in range(50)]

    results = await asyncio.gather(
        *(stores.catalog.packages.add(stores.tenant_id, package) for package in packages), return_exceptions=True
    )

    assert results.count(None) == 1
    assert all(isinstance(result, PackageExists) for result in results if result)
    winner = packages[results.index(None)]
    assert await stores.packages() == [winner]


@pytest.mark.parametrize("by_installer", [True, False])
async def test_one_of_fifty_racing_versions_with_one_key_is_reserved(stores: Stores, by_installer: bool) -> None:
    versions = [make_version(version="7") for _ in range(50)]

    results = await asyncio.gather(
        *(
            stores.catalog.versions.reserve(
                stores.pending(version), version.installer_key if by_installer else version.version
            )
            for version in versions
        ),
        return_exceptions=True,
    )

    assert results.count(None) == 1
    assert all(isinstance(result, VersionExists) for result in results if result)


async def test_one_of_fifty_racing_activations_takes_effect(stores: Stores) -> None:
    version = make_version()
    await stores.catalog.versions.reserve(stores.pending(version), "1.0")

    results = await asyncio.gather(
        *(stores.catalog.versions.activate(stores.tenant_id, version, FILE) for _ in range(50))
    )

    assert results.count(True) == 1


async def test_an_installer_belongs_to_one_version_under_any_version_key(stores: Stores) -> None:
    first, second = make_version(), make_version()
    await stores.catalog.versions.reserve(stores.pending(first), first.version)

    with pytest.raises(VersionExists):
        await stores.catalog.versions.reserve(stores.pending(second), second.installer_key)


async def test_a_pending_version_is_found_by_an_equal_version_only(stores: Stores) -> None:
    version = make_version(switches=Switches(silent="/quiet"))
    pending = stores.pending(version)
    await stores.catalog.versions.reserve(pending, version.version)
    find = stores.catalog.versions.find_equal_pending

    assert await find(stores.pending(replace(version, uid="another", published_by="bela"))) == pending
    assert await find(stores.pending(replace(version, server_filename="b.msi"))) is None
    assert await find(stores.pending(replace(version, switches=Switches()))) is None
    assert await find(stores.pending(version, package_uid="a later package")) is None
    await stores.catalog.versions.activate(stores.tenant_id, version, FILE)
    assert await find(pending) is None


async def test_a_hidden_version_frees_its_keys_at_once(stores: Stores) -> None:
    version = await stores.active()

    await stores.catalog.versions.discard(stores.tenant_id, version.uid)  # Only a pending one is discarded.
    assert await stores.catalog.versions.find(stores.tenant_id, version.uid) == version

    await stores.catalog.versions.hide(stores.tenant_id, "acme.editor", [version.uid])

    assert not await stores.catalog.versions.has_version(stores.tenant_id, "acme.editor", "1.0")
    await stores.active()


async def test_a_version_hidden_while_pending_stays_until_the_sweeper(stores: Stores) -> None:
    active, pending = await stores.active(version="1"), make_version(version="2")
    await stores.catalog.versions.reserve(stores.pending(pending), "2")

    uids = await stores.catalog.versions.hide_all(stores.tenant_id, "a package")
    await stores.catalog.versions.remove(stores.tenant_id, uids)

    assert set(uids) == {active.uid, pending.uid}
    assert not await stores.catalog.versions.activate(stores.tenant_id, pending, FILE)
    assert await stores.catalog.versions.hide_all(stores.tenant_id, "a package") == [pending.uid]
    await stores.catalog.versions.delete_record(HiddenVersion(stores.tenant_id, pending.uid))
    assert await stores.catalog.versions.hide_all(stores.tenant_id, "a package") == []


async def test_hiding_applies_to_all_versions_or_none(stores: Stores) -> None:
    version = await stores.active()

    with pytest.raises(VersionNotFound):
        await stores.catalog.versions.hide(stores.tenant_id, "acme.editor", [version.uid, "unknown"])

    assert await stores.catalog.versions.find(stores.tenant_id, version.uid) == version


async def test_a_started_deletion_hides_the_package_and_can_be_repeated(stores: Stores) -> None:
    package = make_package()
    packages = stores.catalog.packages
    await packages.add(stores.tenant_id, package)
    await packages.end_deletion(stores.tenant_id, package.package_uid)  # It has not begun.
    assert await stores.catalog.versions.package_uid(stores.tenant_id, package.package_id) == package.package_uid

    for _ in range(2):
        assert await packages.begin_deletion(stores.tenant_id, package.package_id) == package.package_uid

    assert await stores.catalog.versions.package_uid(stores.tenant_id, package.package_id) is None
    with pytest.raises(PackageNotFound):
        await packages.change(stores.tenant_id, package.package_id, PackageChanges(name="New"))
    with pytest.raises(PackageExists):
        await packages.add(stores.tenant_id, make_package())
    await packages.end_deletion(stores.tenant_id, package.package_uid)
    await packages.add(stores.tenant_id, make_package())


async def test_text_with_mongodb_operators_is_plain_text(stores: Stores) -> None:
    text = "$uid"
    version = await stores.active(version=text, channel="$$NOW", switches=Switches(silent="$where"))
    await stores.catalog.packages.add(stores.tenant_id, make_package(name=text))
    await stores.catalog.packages.change(stores.tenant_id, "acme.editor", PackageChanges(publisher=text))

    assert await stores.catalog.versions.find(stores.tenant_id, version.uid) == version
    (package,) = await stores.packages()
    assert (package.name, package.publisher) == (text, text)


async def test_deleting_a_tenant_removes_its_data_and_no_other(stores: Stores) -> None:
    remaining = replace(stores, tenant_id=make_tenant().tenant_id)
    for each in (stores, remaining):
        await each.catalog.packages.add(each.tenant_id, make_package())
        await each.active()
        await each.catalog.uploads.note(each.tenant_id, make_upload())
        await each.catalog.policies.edit(each.tenant_id, lambda _: Policy(retention=(RetentionRule(keep_versions=1),)))
        await each.catalog.releases.remember_signer(each.tenant_id, "acme.editor", LastSigner("CN=Acme", 0))
    await stores.catalog.retention.add_tenants()
    assert await stores.catalog.retention.queue.lease() is None

    await stores.catalog.forget_tenant(stores.tenant_id)

    for name in INDEXES:
        assert await stores.database[name].count_documents({"tenant_id": stores.tenant_id}) == 0
        assert await stores.database[name].count_documents({"tenant_id": remaining.tenant_id}) == 1


async def test_every_index_except_the_sweepers_begins_with_the_tenant(stores: Stores) -> None:
    first = [next(iter(index.document["key"])) for indexes in INDEXES.values() for index in indexes]

    assert set(first) - {"tenant_id"} == {"changed_at", "expires_at", "release.due"}


async def test_versions_are_found_while_their_package_exists(stores: Stores) -> None:
    tenant_id, catalog = stores.tenant_id, stores.catalog
    assert await catalog.versions.of_package(tenant_id, "acme.editor") is None
    await catalog.packages.add(tenant_id, make_package())
    assert await catalog.versions.of_package(tenant_id, "acme.editor") == []
    versions = [await stores.active(uid=f"u-{number}", version=number) for number in ("1.0", "2.0")]
    await catalog.versions.reserve(stores.pending(make_version(uid="u-3", version="3.0")), "3.0")
    await stores.active(uid="u-4", package_id="acme.viewer")

    listed = await catalog.versions.of_package(tenant_id, "acme.editor")

    assert sorted(listed or (), key=lambda version: version.uid) == versions
    await catalog.packages.begin_deletion(tenant_id, "acme.editor")
    assert await catalog.versions.of_package(tenant_id, "acme.editor") is None


@pytest.mark.parametrize("order", Order)
async def test_a_package_search_reads_an_index_only(stores: Stores, order: Order) -> None:
    for number in range(10):
        await stores.catalog.packages.add(stores.tenant_id, make_package(package_id=f"acme.{number}", logo=b"png"))
    await stores.database.command("profile", 2)

    summaries, total = await stores.catalog.packages.summaries(
        stores.tenant_id, PackageQuery(text="ED", order=order, limit=3)
    )

    await stores.database.command("profile", 0)
    (profile,) = await stores.database["system.profile"].find({"command.aggregate": "packages"}).to_list(None)
    await stores.database.drop_collection("system.profile")
    assert (len(summaries), total) == (3, 10)
    assert (profile["keysExamined"] > 9, profile["docsExamined"]) == (True, 0)


async def test_every_filter_begins_with_the_tenant(stores: Stores) -> None:
    tenant_id, catalog = stores.tenant_id, stores.catalog
    stores.filters.seen, stores.filters.violations = 0, []

    await catalog.packages.add(tenant_id, make_package())
    await catalog.packages.change(tenant_id, "acme.editor", PackageChanges(active=False))
    assert len(await stores.packages()) == 1
    await catalog.versions.package_uid(tenant_id, "acme.editor")
    await catalog.packages.summaries(tenant_id, PackageQuery(text="e", active=False))
    await catalog.packages.logos(tenant_id, ["acme.editor"])
    await catalog.packages.begin_deletion(tenant_id, "acme.editor")
    await catalog.packages.end_deletion(tenant_id, "a package")
    version = await stores.active()
    await catalog.versions.find_equal_pending(stores.pending(version))
    await catalog.versions.has_version(tenant_id, "acme.editor", "1.0")
    await catalog.versions.discard(tenant_id, version.uid)
    await catalog.versions.of_package(tenant_id, "acme.editor")
    names = [name async for names in catalog.versions.names(tenant_id, None) for name in names]
    assert names == [VersionName("acme.editor", "1.0", version.uid)]
    await catalog.revisions.state(tenant_id, "")
    await catalog.versions.hide(tenant_id, "acme.editor", [version.uid])
    await catalog.versions.hide_all(tenant_id, "a package")
    await catalog.versions.remove(tenant_id, [version.uid])
    await catalog.versions.delete_record(HiddenVersion(tenant_id, version.uid))
    await catalog.uploads.note(tenant_id, make_upload())
    await catalog.uploads.link(tenant_id, "a.msi")
    await catalog.uploads.unlinked(tenant_id)
    await catalog.forget_tenant(tenant_id)

    assert stores.filters.seen > 20
    assert stores.filters.violations == []
