"""The answers to callers of each ring: the catalog, searches, and manifests, while stages and rings change."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest

from catalog_service.catalog import routes as answers
from catalog_service.catalog.cache import CatalogBody, CatalogCache
from catalog_service.releases.gates import Policy
from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, Kind, sign
from common.mongo import Document
from common.tenants import ALL_RINGS
from tests.support.factories import KEY, make_caller
from tests.support.services.catalog import Catalog, serving_catalog
from tests.support.tables import every_cell
from tests.support.wait import TIMEOUT

SEARCH, MANIFEST = "winget/manifestSearch", "winget/packageManifests"
RINGS = ("pilot", "broad", "everyone")
ID = "Acme.Editor"
EVERYBODY = (ALL_RINGS, *RINGS, "", "removed")
NEW, OLD = "2.0", "1.0"


@dataclass(frozen=True)
class Served:
    """Catalog services with the same database, of which the last keeps nothing, and an administrator of a tenant."""

    replicas: tuple[Catalog, ...]
    administrator: Caller

    @property
    def catalog(self) -> Catalog:
        return self.replicas[0]

    def caller(self, ring: str) -> Caller:
        """A client of a ring, or the administrator for `ALL_RINGS`."""
        if ring == ALL_RINGS:
            return self.administrator
        return make_caller(self.administrator.tenant, kind=Kind.CLIENT, client_id="c1", username="", ring=ring)

    async def set_rings(self, *rings: str) -> None:
        await self.catalog.store.policies.edit(self.administrator.tenant_id, lambda _: Policy(rings=rings))

    async def set_stage(self, uid: str, *rings: str, status: str = "active", package_id: str = ID) -> None:
        """Write a stage as release control does."""
        await self._update(uid, package_id, {"$set": {"stage": {"rings": list(rings), "status": status}}})

    async def add(self, package_version: str, package_id: str = ID, **fields: str) -> str:
        """Add a version that is in all rings, with a command and a product code of its own. Returns its uid."""
        form = {"commands": f"run-{package_version}", "productcode": code(package_version), **fields}
        uid = await self.catalog.add_version(self.administrator, package_id, package_version=package_version, **form)
        await self._update(uid, package_id, {"$unset": {"stage": "", "release": ""}})  # Gates never move it.
        return uid

    async def _update(self, uid: str, package_id: str, change: Document) -> None:
        tenant_id = self.administrator.tenant_id
        async with self.catalog.store.revisions.record_change(tenant_id, package_id):
            await self.catalog.database["versions"].update_one({"tenant_id": tenant_id, "uid": uid}, change)

    async def seen(self, ring: str, package_id: str = ID) -> set[tuple[str, ...] | None]:
        """The versions of a package that a ring gets in each answer of each replica, None for no package."""
        caller, seen = self.caller(ring), set[tuple[str, ...] | None]()
        for catalog in self.replicas:
            packages = {package["PACKAGE_ID"]: package["VERSIONS"] for package in await catalog.packages(caller)}
            hits = {hit["PackageIdentifier"]: hit["Versions"] for hit in await search(catalog, caller)}
            manifest = await manifest_of(catalog, caller, package_id)
            for versions in (packages.get(package_id), *map(names, (hits.get(package_id), manifest))):
                seen.add(None if versions is None else tuple(versions))
        return seen


def code(package_version: str) -> str:
    return f"{{{package_version.replace('.', ''):0>8}-89AB-CDEF-0123-456789ABCDEF}}"


def names(versions: list[dict[str, Any]] | None) -> list[str] | None:
    return None if versions is None else [version["PackageVersion"] for version in versions]


async def search(catalog: Catalog, caller: Caller, **body: Any) -> list[dict[str, Any]]:
    answer = await catalog.call(caller, "POST", SEARCH, json=body, headers={"Version": "1.28.0"})
    assert answer.status in {200, 204}, answer.body
    hits: list[dict[str, Any]] = answer.body["Data"] if answer.status == 200 else []
    return hits


async def manifest_of(catalog: Catalog, caller: Caller, package_id: str) -> list[dict[str, Any]] | None:
    answer = await catalog.call(caller, "GET", MANIFEST, package_id, headers={"Version": "1.28.0"})
    assert answer.status in {200, 204}, answer.body
    versions: list[dict[str, Any]] | None = answer.body["Data"]["Versions"] if answer.status == 200 else None
    return versions


@pytest.fixture(scope="module")
async def replicas(mongo_url: str, redis_url: str) -> AsyncIterator[tuple[Catalog, ...]]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving_catalog(mongo_url, redis_url))
        database = first.settings.database
        second = await stack.enter_async_context(serving_catalog(mongo_url, redis_url, database=database))
        keeping_nothing = serving_catalog(mongo_url, redis_url, database=database, catalog_disk=0, search_memory=0)
        yield first, second, await stack.enter_async_context(keeping_nothing)


@pytest.fixture
async def served(replicas: tuple[Catalog, ...]) -> Served:
    for replica in replicas:
        replica.stubs.reset()
    served = Served(replicas, make_caller())
    await served.catalog.add_package(served.administrator, ID)
    return served


async def test_each_ring_gets_its_versions_in_every_answer(served: Served) -> None:
    await served.set_rings(*RINGS)
    await served.add(OLD)
    uid = await served.add(NEW)
    both, old = (NEW, OLD), (OLD,)
    stages: list[tuple[tuple[str, ...], str, tuple[tuple[str, ...], ...]]] = [
        ((), "active", (old, old, old)),
        (("pilot",), "active", (both, old, old)),
        (("pilot", "broad"), "paused", (both, both, old)),
        ((ALL_RINGS,), "active", (both, both, both)),
        ((ALL_RINGS,), "held", (old, old, old)),
        (("pilot",), "rolled_back", (old, old, old)),
        (("pilot",), "retired", (old, old, old)),
        (("broad",), "active", (both, both, old)),
    ]
    with every_cell() as cell:
        for rings, status, (pilot, broad, last) in stages:
            await served.set_stage(uid, *rings, status=status)
            for ring, expected in zip(EVERYBODY, (both, pilot, broad, last, last, last), strict=True):
                with cell(rings, status, ring):
                    assert await served.seen(ring) == {expected}


async def test_without_rings_only_withdrawn_versions_are_missing(served: Served) -> None:
    await served.catalog.add_package(served.administrator, "Acme.Empty")
    uids = {name: await served.add(name) for name in ("1.0", "2.0", "3.0", "4.0")}
    await served.set_stage(uids["2.0"], "removed ring")
    await served.set_stage(uids["3.0"], ALL_RINGS)
    await served.set_stage(uids["4.0"], ALL_RINGS, status="held")
    await served.catalog.add_package(served.administrator, "Acme.Held")
    await served.set_stage(await served.add(OLD, "Acme.Held"), ALL_RINGS, status="held", package_id="Acme.Held")

    assert await served.seen(ALL_RINGS) == {("4.0", "3.0", "2.0", "1.0")}
    for ring in ("", "removed ring", "everyone"):
        assert await served.seen(ring) == {("3.0", "1.0")}
        for replica in served.replicas:
            packages = {each["PACKAGE_ID"]: each["VERSIONS"] for each in await replica.packages(served.caller(ring))}
            assert (packages["Acme.Empty"], packages.get("Acme.Held")) == ([], None)
            assert await manifest_of(replica, served.caller(ring), "Acme.Held") is None


async def test_a_change_of_the_rings_is_seen_by_every_replica(served: Served) -> None:
    uid = await served.add(NEW)
    await served.set_stage(uid, "pilot")
    for rings, ring, expected in (
        (RINGS, "pilot", (NEW,)),
        (("broad", "pilot"), "broad", (NEW,)),
        (("pilot", "broad"), "broad", None),
        (("broad",), "pilot", None),
        (("pilot",), "broad", (NEW,)),
        ((), "pilot", None),
        (RINGS, "pilot", (NEW,)),
    ):
        await served.set_rings(*rings)
        assert await served.seen(ring) - {()} == {expected}  # Without rings, packages without versions are shown.


async def versions_in(read: str, catalog: Catalog, caller: Caller) -> list[str] | None:
    """The versions of the package in one kind of answer."""
    match read:
        case "packages":
            (package,) = await catalog.packages(caller)
            listed: list[str] = package["VERSIONS"]
            return listed
        case "search":
            (hit,) = await search(catalog, caller)
            return names(hit["Versions"])
    return names(await manifest_of(catalog, caller, ID))


async def test_no_answer_has_a_version_withdrawn_before_it_was_asked(served: Served) -> None:
    await served.set_rings(*RINGS)
    await served.add(OLD)
    uid = await served.add(NEW)
    changes = 0  # After an odd number, the version is withdrawn.
    done = asyncio.Event()

    async def client(read: str, catalog: Catalog, ring: str) -> None:
        while not done.is_set():
            changes_before = changes
            versions = await versions_in(read, catalog, served.caller(ring))
            if changes_before == changes and changes % 2:
                assert versions == [OLD]

    async with asyncio.TaskGroup() as group:
        for catalog in served.replicas[:2]:
            for read in ("packages", "search", "manifest"):
                for ring in RINGS:
                    group.create_task(client(read, catalog, ring))
        for _ in range(5):
            await served.set_stage(uid, ALL_RINGS, status="held")
            changes += 1
            for read in ("packages", "search", "manifest"):
                assert await versions_in(read, served.replicas[1], served.caller("pilot")) == [OLD]
            changes += 1
            await served.set_stage(uid, ALL_RINGS)
        done.set()


async def test_a_continuation_token_of_another_ring_shows_no_more(served: Served) -> None:
    await served.set_rings(*RINGS)
    for number in range(6):
        package_id = f"Acme.App{number}"
        await served.catalog.add_package(served.administrator, package_id)
        uid = await served.add(OLD, package_id)
        await served.set_stage(uid, *([] if number % 3 == 0 else RINGS[: number % 3]), package_id=package_id)

    async def pages(first: str, then: str) -> list[str]:
        ids: list[str] = []
        token: dict[str, str] = {}
        caller = served.caller(first)
        while True:
            headers = {"Version": "1.28.0", **token}
            answer = await served.catalog.call(caller, "POST", SEARCH, json={"MaximumResults": 1}, headers=headers)
            if answer.status == 204:
                return ids
            ids += [hit["PackageIdentifier"].removeprefix("Acme.App") for hit in answer.body["Data"]]
            if "ContinuationToken" not in answer.body:
                return ids
            caller, token = served.caller(then), {"ContinuationToken": answer.body["ContinuationToken"]}

    assert await pages("pilot", "pilot") == ["1", "2", "4", "5"]
    assert await pages("broad", "broad") == ["2", "5"]
    assert await pages(ALL_RINGS, "broad") == ["0", "2", "5"]
    assert await pages("pilot", "everyone") == ["1"]


async def test_a_late_answer_has_the_versions_of_the_ring(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.set_rings(*RINGS)
    await served.add(OLD)
    await served.set_stage(await served.add(NEW), "pilot")
    monkeypatch.setattr(answers, "START_TIMEOUT", 0.01)
    body, go_on = CatalogCache.body, asyncio.Event()

    async def slowly(*arguments: Any) -> CatalogBody | None:
        await go_on.wait()
        return await body(*arguments)

    monkeypatch.setattr(CatalogCache, "body", slowly)
    for replica in served.replicas:
        for ring, expected in (("pilot", [NEW, OLD]), ("broad", [OLD]), (ALL_RINGS, [NEW, OLD])):
            go_on.clear()
            caller = served.caller(ring)
            token = sign(KEY, caller, service="catalog_service", operation="get_packages")
            address = f"{replica.api.address}/{caller.tenant_id}/get_packages"
            async with (
                asyncio.timeout(TIMEOUT),
                replica.api.session.post(address, headers={INTERNAL_TOKEN: token}) as answer,
            ):
                assert "Content-Length" not in answer.headers
                go_on.set()
                assert [package["VERSIONS"] for package in await answer.json()] == [expected]


CALLERS: dict[str, tuple[Callable[[Caller], Caller], bool]] = {
    "anonymous": (lambda caller: Caller(caller.tenant, base_url=caller.base_url), False),
    "client": (lambda caller: Caller(caller.tenant, base_url=caller.base_url).as_client("c1"), False),
    "user of Entra ID": (lambda caller: Caller(caller.tenant, base_url=caller.base_url).as_client("", "pilot"), True),
    "administrator in a ring": (lambda caller: replace(caller, ring="everyone"), True),
}


async def test_only_users_and_services_see_every_version(served: Served) -> None:
    await served.set_rings(*RINGS)
    await served.set_stage(await served.add(NEW), "pilot")
    with every_cell() as cell:
        for kind, (make, sees) in CALLERS.items():
            caller = make(served.administrator)
            for replica in served.replicas:
                with cell(kind):
                    assert len(await replica.packages(caller)) == sees
                    assert len(await search(replica, caller)) == sees
                    assert bool(await manifest_of(replica, caller, ID)) == sees


async def test_hidden_packages_stay_hidden_in_every_ring(served: Served) -> None:
    await served.set_rings(*RINGS)
    await served.set_stage(await served.add(NEW), "pilot")
    await served.catalog.add_package(served.administrator, "Acme.Other")
    await served.add(OLD, "Acme.Other")
    for replica in served.replicas:
        replica.stubs.hidden[served.administrator.tenant_id] = [ID]
        for ring in RINGS:
            packages = await replica.packages(served.caller(ring))
            assert [package["PACKAGE_ID"] for package in packages] == ["Acme.Other"]
            assert [hit["PackageIdentifier"] for hit in await search(replica, served.caller(ring))] == ["Acme.Other"]
            assert await manifest_of(replica, served.caller(ring), ID) is None
