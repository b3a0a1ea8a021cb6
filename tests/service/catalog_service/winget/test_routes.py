"""The winget interface over HTTP, while the catalog changes."""

import asyncio
import time
from collections import Counter
from functools import partial
from itertools import cycle
from threading import get_ident
from typing import Any

import orjson
import pytest
from yarl import URL

from catalog_service.catalog.reader import read_entries
from catalog_service.winget.manifest import manifest
from catalog_service.winget.requests import Search
from catalog_service.winget.search import SEARCHES_OF_NETWORK, SEARCHES_OF_TENANT, SearchResult, WingetSearch
from common.auth.internal_tokens import Caller, Kind
from common.errors import Unavailable
from common.tenants import ALL_RINGS
from tests.support.api import Answer
from tests.support.factories import make_caller, make_tenant
from tests.support.services.catalog import Catalog, serving_catalog
from tests.support.tables import each
from tests.support.wait import TIMEOUT
from tests.support.winget.rules import check_hit, check_manifest

SEARCH, MANIFEST = "winget/manifestSearch", "winget/packageManifests"
LATEST = {"Version": "1.28.0"}
HOUR, DAY = 3600, 24 * 3600  # seconds


@pytest.fixture
def caller() -> Caller:
    return make_caller()


async def search(catalog: Catalog, caller: Caller, token: str = "", **body: Any) -> Answer:
    headers = {**LATEST, **({"ContinuationToken": token} if token else {})}
    answer = await catalog.call(caller, "POST", SEARCH, json=body, headers=headers)
    for hit in answer.body["Data"] if answer.status == 200 else ():
        check_hit(hit)
    return answer


async def result_ids(catalog: Catalog, caller: Caller, **body: Any) -> list[str]:
    """The ids of the first page of a search."""
    answer = await search(catalog, caller, **body)
    assert answer.status in {200, 204}, answer.body
    return [hit["PackageIdentifier"] for hit in answer.body["Data"]] if answer.status == 200 else []


async def versions(catalog: Catalog, caller: Caller, package_id: str, **query: str) -> list[dict[str, Any]]:
    """The versions in the manifest of a package; empty without a manifest."""
    answer = await catalog.call(caller, "GET", MANIFEST, package_id, params=query, headers=LATEST)
    if answer.status == 204:
        return []
    assert answer.status == 200, answer.body
    check_manifest(answer.body["Data"], 28)
    manifest_versions: list[dict[str, Any]] = answer.body["Data"]["Versions"]
    return manifest_versions


async def publish(catalog: Catalog, caller: Caller, *package_ids: str, **fields: str) -> None:
    """Add packages, each with a version."""
    for package_id in package_ids:
        await catalog.add_package(caller, package_id)
        await catalog.add_version(caller, package_id, **fields)


async def test_a_search_shows_the_current_catalog(catalog: Catalog, caller: Caller) -> None:
    assert await result_ids(catalog, caller) == []
    await catalog.add_package(caller, "Acme.Editor")
    assert await result_ids(catalog, caller) == []  # The package has no installable version.
    uid = await catalog.add_version(caller, "Acme.Editor")
    assert await result_ids(catalog, caller) == ["Acme.Editor"]
    await catalog.call(caller, "PATCH", "edit_package", "Acme.Editor", data={"package_name": "Renamed", "tags": "new"})
    by_tag = {"PackageMatchField": "Tag", "RequestMatch": {"KeyWord": "NEW", "MatchType": "CaseInsensitive"}}
    (hit,) = (await search(catalog, caller, Filters=[by_tag])).body["Data"]
    assert (hit["PackageName"], hit["Publisher"]) == ("Renamed", "Acme")
    await catalog.call(caller, "PATCH", "set_package_active", "Acme.Editor", data={"package_active": "0"})
    assert await result_ids(catalog, caller) == []
    assert await versions(catalog, caller, "Acme.Editor") == []
    await catalog.call(caller, "PATCH", "set_package_active", "Acme.Editor", data={"package_active": "1"})
    assert await result_ids(catalog, caller) == ["Acme.Editor"]
    await catalog.call(caller, "DELETE", "delete_package_version", "Acme.Editor", data={"versions_uids": uid})
    assert await result_ids(catalog, caller) == []
    assert await versions(catalog, caller, "Acme.Editor") == []


async def test_packages_that_clients_refuse_are_omitted(catalog: Catalog, caller: Caller) -> None:
    await publish(catalog, caller, "Acme.Editor", "editor", f"Acme.{'e' * 33}")
    await catalog.add_version(caller, "Acme.Editor", package_version="1.1", channel="beta")
    await catalog.add_version(caller, "Acme.Editor", package_version="1/3")
    (hit,) = (await search(catalog, caller)).body["Data"]
    assert (hit["PackageIdentifier"], hit["Versions"]) == ("Acme.Editor", [{"PackageVersion": "1.0"}])
    assert [version["PackageVersion"] for version in await versions(catalog, caller, "Acme.Editor")] == ["1.0"]
    assert await versions(catalog, caller, "editor") == []


async def test_searches_and_manifests_apply_the_blacklist(catalog: Catalog, caller: Caller) -> None:
    await publish(catalog, caller, "Acme.Editor", "Acme.Hidden")
    catalog.stubs.hidden[caller.tenant_id] = ["Acme.Hidden"]
    client = make_caller(caller.tenant, kind=Kind.CLIENT, client_id="c1")
    assert await result_ids(catalog, client) == ["Acme.Editor"]
    assert await versions(catalog, client, "Acme.Hidden") == await versions(catalog, client, "acme.hidden") == []
    assert len(await versions(catalog, caller, "Acme.Hidden")) == 1
    catalog.stubs.refusal = Unavailable("away")
    for answer in (await search(catalog, client), await catalog.call(client, "GET", MANIFEST, "Acme.Hidden")):
        assert answer.status == 500


async def read_pages(catalog: Catalog, caller: Caller, token: str = "", **body: Any) -> list[list[str]]:
    """The ids of each page of a search, from a page on."""
    pages: list[list[str]] = []
    while (token or not pages) and len(pages) < 10:
        page = (await search(catalog, caller, token, **body)).body
        pages.append([hit["PackageIdentifier"] for hit in page["Data"]])
        token = page.get("ContinuationToken", "")
    return pages


async def test_pages_stay_correct_while_the_catalog_changes(catalog: Catalog, caller: Caller) -> None:
    await publish(catalog, caller, *(f"Acme.App{number}" for number in range(6)))
    first = (await search(catalog, caller, MaximumResults=2)).body
    assert [hit["PackageIdentifier"] for hit in first["Data"]] == ["Acme.App0", "Acme.App1"]
    await catalog.call(caller, "DELETE", "delete_package", "Acme.App1")
    await catalog.call(caller, "DELETE", "delete_package", "Acme.App3")
    await publish(catalog, caller, "Acme.App00", "Acme.App22")
    pages = await read_pages(catalog, caller, first["ContinuationToken"], MaximumResults=2)
    assert pages == [["Acme.App2", "Acme.App22"], ["Acme.App4", "Acme.App5"]]
    other = {"Query": {"KeyWord": "app", "MatchType": "Substring"}}
    answer = await search(catalog, caller, first["ContinuationToken"], **other)
    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, "ContinuationToken")


async def test_a_page_has_a_maximum_size(catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"Acme.App{number}" for number in range(5)]
    await publish(catalog, caller, *ids)
    size_of_one = len(orjson.dumps((await search(catalog, caller)).body["Data"][0]))
    for size, counts in (
        (2 * size_of_one, [2, 2, 1]),
        (2 * size_of_one - 1, [1] * 5),
        (1, [1] * 5),
        (5 * size_of_one, [5]),
    ):
        monkeypatch.setattr("catalog_service.winget.routes.PAGE_SIZE", size)
        pages = await read_pages(catalog, caller)
        assert [len(page) for page in pages] == counts
        assert [package_id for page in pages for package_id in page] == ids


async def test_a_manifest_can_be_limited_to_a_version_or_market(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller, "Acme.Editor")
    await catalog.add_version(caller, "Acme.Editor", package_version="1.0-Beta")
    await catalog.add_version(caller, "Acme.Editor", package_version="2.0", allowed_markets="DE")
    numbers = [version["PackageVersion"] for version in await versions(catalog, caller, "ACME.editor")]
    assert numbers == ["2.0", "1.0-Beta"]
    assert len(await versions(catalog, caller, "Acme.Editor", version="1.0-BETA")) == 1
    assert await versions(catalog, caller, "Acme.Editor", Version="1.0") == []
    assert len(await versions(catalog, caller, "Acme.Editor", MARKET="de")) == 2
    assert len(await versions(catalog, caller, "Acme.Editor", Market="US")) == 1
    assert len(await versions(catalog, caller, "Acme.Editor", Channel="stable")) == 2
    assert await versions(catalog, caller, "Acme.Editor", Channel="beta") == []
    assert await versions(catalog, caller, "Acme.Nobody") == []


@pytest.mark.parametrize(
    ("file_type", "signature", "lifetime"),
    [
        ("MSIX", "ab" * 32, range(DAY, DAY + HOUR + 1)),
        ("MSIX", "", range(HOUR + 1)),
        ("EXE", "ab" * 32, range(HOUR + 1)),
    ],
    ids=["MSIX", "unsigned MSIX", "EXE"],
)
async def test_the_url_of_a_signed_package_outlives_its_installation(
    catalog: Catalog, caller: Caller, file_type: str, signature: str, lifetime: range
) -> None:
    signed = {"signature_sha256": signature} if signature else {}
    await publish(catalog, caller, "Acme.Editor", file_type=file_type, **signed)
    (version,) = await versions(catalog, caller, "Acme.Editor")
    expires = int(URL(version["Installers"][0]["InstallerUrl"]).query["expires"])
    assert expires - int(time.time()) in lifetime


async def test_a_manifest_of_many_versions_is_built_in_a_thread(
    catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def record_thread(*arguments: Any) -> Any:
        threads.append(get_ident())
        return manifest(*arguments)

    monkeypatch.setattr("catalog_service.winget.routes.manifest", record_thread)
    monkeypatch.setattr("catalog_service.winget.routes.MANY", 1)
    await catalog.add_package(caller, "Acme.Editor")
    for count, version in enumerate(("1.0", "2.0"), start=1):
        await catalog.add_version(caller, "Acme.Editor", package_version=version)
        assert len(await versions(catalog, caller, "Acme.Editor")) == count
    assert threads[0] == get_ident() != threads[1]


async def test_fields_unknown_to_a_contract_are_not_searched(catalog: Catalog, caller: Caller) -> None:
    for package_id, kind in (("Acme.Font", "FONT"), ("Acme.Tool", "PORTABLE"), ("Acme.Editor", "MSI")):
        await publish(catalog, caller, package_id, file_type=kind)
    await catalog.add_version(caller, "Acme.Tool", package_version="0.9")
    for version, expected in {
        "1.12.0": {"Acme.Font": ["1.0"], "Acme.Tool": ["1.0", "0.9"], "Acme.Editor": ["1.0"]},
        "1.10.0": {"Acme.Tool": ["1.0", "0.9"], "Acme.Editor": ["1.0"]},
        "1.1.0": {"Acme.Tool": ["0.9"], "Acme.Editor": ["1.0"]},
    }.items():
        answer = await catalog.call(caller, "POST", SEARCH, json={}, headers={"Version": version})
        hits = answer.body["Data"]
        found = {hit["PackageIdentifier"]: [each["PackageVersion"] for each in hit["Versions"]] for hit in hits}
        assert found == expected


async def test_another_replica_and_a_full_cache_show_the_same(catalog: Catalog, mongo_url: str, redis_url: str) -> None:
    caller = make_caller()
    await publish(catalog, caller, "Acme.Editor")
    async with serving_catalog(mongo_url, redis_url, database=catalog.settings.database, search_memory=0) as small:
        for replica in (catalog, small):
            assert await result_ids(replica, caller) == ["Acme.Editor"]
        await small.call(caller, "DELETE", "delete_package", "Acme.Editor")
        await publish(small, caller, "Acme.Other")
        for replica in (catalog, small):
            assert await result_ids(replica, caller) == ["Acme.Other"]


async def test_indexes_of_all_tenants_stay_within_their_limit(catalog: Catalog) -> None:
    callers = [make_caller() for _ in range(4)]
    for caller in callers:
        await publish(catalog, caller, "Acme.Editor")
    entries = partial(
        read_entries, partial(catalog.store.packages.read, without="logo"), catalog.store.versions.versions
    )
    readers = catalog.store.revisions.state, entries, catalog.store.policies.rings
    winget_search = WingetSearch(*readers, memory=1 << 20)
    await winget_search.find(callers[0].tenant_id, Search(), ALL_RINGS, frozenset())
    bounded = WingetSearch(*readers, memory=2 * winget_search.size)
    for caller in callers * 2:
        (record,) = (await bounded.find(caller.tenant_id, Search(), ALL_RINGS, frozenset())).records
        assert record.package_id == "Acme.Editor"
        assert 0 < bounded.size <= 2 * winget_search.size


async def test_unchanged_packages_are_not_read_again(catalog: Catalog, caller: Caller) -> None:
    await publish(catalog, caller, "Acme.Editor", "Acme.Other")
    assert len(await result_ids(catalog, caller)) == 2
    async with catalog.queries() as queries:
        assert len(await result_ids(catalog, caller)) == 2
    assert {query["command"].get("find") for query in queries} == {"revisions"}
    await catalog.add_version(caller, "Acme.Other", package_version="2.0")
    async with catalog.queries() as queries:
        assert len(await result_ids(catalog, caller)) == 2
    expected = [
        query["command"]["filter"]["package_id"] for query in queries if query["command"].get("find") != "revisions"
    ]
    assert expected == [{"$in": ["Acme.Other"]}] * 2


@each("text", ["editor", "Acme.", "a" * 5_000, "../Acme.Editor", "Acme.Ed*tor", "编辑器", "-"])
async def test_text_that_cannot_be_an_id_needs_no_query(catalog: Catalog, caller: Caller, text: str) -> None:
    async with catalog.queries() as queries:
        answer = await catalog.call(caller, "GET", MANIFEST, text, headers=LATEST)

    assert (answer.status, queries) == (204, [])


async def test_version_with_a_wrong_windows_feature_is_not_created(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller)

    answer = await catalog.post_version(caller, dep_windows_features="Net Fx 4")

    detail = "dep_windows_features: must have names of letters, digits, - and _ only"
    assert (answer.status, answer.body["detail"]) == (400, detail)


def part(kind: str, field: str = "PackageName") -> dict[str, object]:
    return {"PackageMatchField": field, "RequestMatch": {"KeyWord": "nothing", "MatchType": kind}}


SCANS: list[dict[str, Any]] = [
    {"Query": {"KeyWord": "nothing", "MatchType": "Substring"}},
    {"Filters": [part("Wildcard")]},
]
UPGRADE: dict[str, Any] = {
    "Inclusions": [part("Exact", field) for field in ("PackageFamilyName", "ProductCode", "PackageName")]
}


SEARCHES_WAITING = 8  # fewer than in production, so few requests fill the queue


class Gate:
    """Blocks the searches that scan texts until the test opens it, and counts the running ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.running, self.most = asyncio.Event(), 0, 0
        self.by_tenant: Counter[str] = Counter()
        find = WingetSearch.find

        async def blocked_search(searches: WingetSearch, tenant_id: str, query: Search, *others: Any) -> SearchResult:
            if all(match.of_whole_values for match in (*query.either, *query.filters)):
                return await find(searches, tenant_id, query, *others)
            self.running += 1
            self.by_tenant[tenant_id] += 1
            self.most = max(self.most, self.running)
            await self.opened.wait()
            self.running -= 1
            return await find(searches, tenant_id, query, *others)

        monkeypatch.setattr(WingetSearch, "find", blocked_search)
        monkeypatch.setattr("catalog_service.winget.search.SEARCH_TIMEOUT", TIMEOUT)
        monkeypatch.setattr("catalog_service.winget.search.SEARCHES_WAITING", SEARCHES_WAITING)

    async def wait_for_running(self, running: int) -> None:
        async with asyncio.timeout(TIMEOUT):
            while self.running < running:  # noqa: ASYNC110  the gate does not tell who waits
                await asyncio.sleep(0.001)


def start(catalog: Catalog, *callers: Caller) -> list[asyncio.Task[Answer]]:
    """Send a search that scans texts for each caller, with alternating match types."""
    bodies = zip(callers, cycle(SCANS), strict=False)
    return [asyncio.create_task(search(catalog, caller, **body)) for caller, body in bodies]


async def test_text_searches_of_one_network_are_limited(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, addresses = Gate(monkeypatch), ("2001:db8::1", "2001:db8::2")  # Both addresses are in one /64 network.
    too_many = 12
    callers = range(SEARCHES_OF_NETWORK + SEARCHES_WAITING + too_many)
    callers_of_network = [
        make_caller(ip=addresses[number % 2]) for number in callers
    ]  # Each caller is of another tenant.
    sent = start(catalog, *callers_of_network)
    await gate.wait_for_running(SEARCHES_OF_NETWORK)
    # The queue is full, so the other searches are refused at once.
    async with asyncio.timeout(TIMEOUT):
        coming = asyncio.as_completed(sent)
        refused = [await next(coming) for _ in range(too_many)]
    assert {(answer.status, answer.headers["Retry-After"]) for answer in refused} == {(503, "2")}
    # Another network has its own limit.
    sent += start(catalog, make_caller(ip="192.0.2.1"))
    await gate.wait_for_running(SEARCHES_OF_NETWORK + 1)
    gate.opened.set()
    statuses = Counter(answer.status for answer in await asyncio.gather(*sent))
    assert statuses == {204: SEARCHES_OF_NETWORK + SEARCHES_WAITING + 1, 503: too_many}
    assert gate.most == SEARCHES_OF_NETWORK + 1


async def test_text_searches_of_one_tenant_are_limited(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, tenant = Gate(monkeypatch), make_tenant()
    sent = start(catalog, *(make_caller(tenant, ip=f"192.0.2.{number}") for number in range(SEARCHES_OF_TENANT + 6)))
    await gate.wait_for_running(SEARCHES_OF_TENANT)
    sent += start(catalog, make_caller(ip="198.51.100.1"))  # of another tenant
    await gate.wait_for_running(SEARCHES_OF_TENANT + 1)
    assert gate.by_tenant[tenant.tenant_id] == SEARCHES_OF_TENANT
    gate.opened.set()
    assert {answer.status for answer in await asyncio.gather(*sent)} == {204}
    assert gate.most == SEARCHES_OF_TENANT + 1


async def test_searches_of_an_upgrade_never_wait_for_text_searches(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, caller = Gate(monkeypatch), make_caller(ip="192.0.2.1")
    sent = start(catalog, *[caller] * (SEARCHES_OF_NETWORK + SEARCHES_WAITING))
    await gate.wait_for_running(SEARCHES_OF_NETWORK)
    async with asyncio.timeout(TIMEOUT):
        answers = await asyncio.gather(*(search(catalog, caller, **UPGRADE) for _ in range(40)))
    assert {answer.status for answer in answers} == {204}
    gate.opened.set()
    assert {answer.status for answer in await asyncio.gather(*sent)} == {204}
