"""A cached catalog is the one that catalog_service would send to the caller."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st

from common.auth.internal_tokens import HIDDEN, Caller, hidden_digest
from common.auth.roles import ADMINISTRATOR
from common.http.bodies import CODINGS
from common.service_client.client import ServiceClient
from common.tenants import Tenant
from gateway.auth.authenticator import TENANT_VERSION
from gateway.auth.directories import ClientDirectory
from gateway.caching.catalogs import Catalog, CatalogCache
from tests.support.tables import each

BUDGET = 1 << 20  # bytes
TENANTS = ("acme", "other")
CLIENTS = ("c1", "c2", "c3")
RINGS = {"c3": "pilot"}  # Other clients are in the last ring.
PACKAGES = ("A", "B")
FEW = 40  # steps


@dataclass
class SimulatedServices:
    """The catalogs and blacklists of two tenants, and their services. A write changes the tenant's version."""

    revisions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0))
    hidden: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TENANTS, ""))
    calls: list[tuple[str, int]] = field(default_factory=list)
    during: Callable[[], None] | None = None
    tagged: bool = True
    size: int = 0
    sized: bool = True
    slow: dict[str, asyncio.Event] = field(default_factory=dict)

    def expected_catalog(self, caller: Caller, *, disabled: bool, encoding: str) -> str:
        hidden = self.hidden.get((caller.tenant_id, caller.client_id), frozenset()) if caller.client_id else ()
        parts = [caller.tenant_id, str(self.revisions[caller.tenant_id]), str(disabled), "".join(sorted(hidden))]
        return "|".join([*parts, caller.audience, encoding]) + " " * self.size

    async def json(self, caller: Caller, operation: str) -> dict[str, Any]:
        assert operation == "hidden_packages"
        hidden = self.hidden.get((caller.tenant_id, caller.client_id), frozenset())
        return {"package_ids": sorted(hidden)}

    @asynccontextmanager
    async def open(
        self,
        caller: Caller,
        method: str,
        segments: list[str],
        *,
        query: str,
        headers: Mapping[str, str],
        streamed: bool,
    ) -> AsyncIterator[Any]:
        assert (method, segments, streamed) == ("POST", ["get_packages"], True)  # and with the default timeout
        await asyncio.sleep(0)
        if go_on := self.slow.get(caller.tenant_id):
            await go_on.wait()
        if self.during:
            self.during()
            self.during = None
        encoding = headers["Accept-Encoding"]
        body = self.expected_catalog(caller, disabled=query == "include_disabled=true", encoding=encoding).encode()
        tag = f'"{sha256(body).hexdigest()}"'
        hidden = self.hidden.get((caller.tenant_id, caller.client_id), frozenset()) if caller.client_id else ()
        status = 304 if self.tagged and headers.get("If-None-Match") == tag else 200
        self.calls.append((caller.tenant_id, status))
        yield SimpleNamespace(
            status=status,
            headers={HIDDEN: hidden_digest(hidden), **({"ETag": tag} if self.tagged else {})},
            content_length=len(body) if self.sized else None,
            content=SimpleNamespace(iter_any=lambda: blocks(body if status == 200 else b"")),
        )

    def catalogs(self) -> CatalogCache:
        service = cast("ServiceClient", self)
        return CatalogCache(service, ClientDirectory(service), budget=BUDGET)

    def move(self, tenant_id: str) -> None:
        self.versions[tenant_id] += "x"


async def blocks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1000):
        yield body[start : start + 1000]


def make_caller(tenant_id: str, client_id: str = "") -> Caller:
    """A client, or an administrator."""
    if client_id:
        return Caller(Tenant(tenant_id)).as_client(client_id, RINGS.get(client_id, ""))
    return Caller(Tenant(tenant_id)).as_administrator("admin", "s1", ADMINISTRATOR)


def request_for(*, disabled: bool = False, encoding: str = "", etag: str = "", version: str | None = "") -> web.Request:
    headers = {"Accept-Encoding": encoding, "If-None-Match": etag}
    query = "?include_disabled=true" if disabled else ""
    path = f"/x/get_packages{query}"
    request = make_mocked_request("POST", path, {name: value for name, value in headers.items() if value})
    request[TENANT_VERSION] = version
    return request


async def catalog_text(
    cache: CatalogCache, services: SimulatedServices, caller: Caller, *, disabled: bool = False, encoding: str = ""
) -> str:
    """The catalog that a caller gets, cached or forwarded."""
    request = request_for(disabled=disabled, encoding=encoding, version=services.versions[caller.tenant_id])
    catalog = await cache.find(request, caller)
    if catalog is None:
        return services.expected_catalog(caller, disabled=disabled, encoding=encoding or "identity")
    assert isinstance(catalog.body, bytes)
    return catalog.body.decode()


WRITES = st.one_of(
    st.tuples(st.just("catalog"), st.sampled_from(TENANTS)),
    st.tuples(st.just("hide"), st.sampled_from(TENANTS), st.sampled_from(CLIENTS), st.sampled_from(PACKAGES)),
)
STEPS = st.one_of(
    WRITES,
    st.tuples(
        st.just("ask"),
        st.sampled_from(TENANTS),
        st.sampled_from(("", *CLIENTS)),
        st.booleans(),
        st.sampled_from(("", "gzip", "zstd")),
        st.none() | WRITES,  # a write that is committed during the fetch and changes the version later
    ),
)


def write(services: SimulatedServices, step: tuple[Any, ...]) -> None:
    if step[0] == "catalog":
        services.revisions[step[1]] += 1
    else:
        key = step[1], step[2]
        services.hidden[key] = services.hidden.get(key, frozenset()) ^ {step[3]}


@settings(max_examples=40)
@given(st.lists(STEPS, max_size=FEW))
def test_a_caller_gets_the_newest_catalog_of_their_own_view_only(steps: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        services = SimulatedServices()
        cache = services.catalogs()
        for step in steps:
            if step[0] != "ask":
                write(services, step)
                services.move(step[1])
                continue
            _, tenant_id, client_id, disabled, accepted, concurrent_write = step
            caller = make_caller(tenant_id, client_id)
            encoding = accepted or "identity"
            allowed = {services.expected_catalog(caller, disabled=disabled, encoding=encoding)}
            if concurrent_write:
                services.during = lambda write_now=concurrent_write: write(services, write_now)
            answers = [await catalog_text(cache, services, caller, disabled=disabled, encoding=accepted)]
            if services.during:  # The catalog was cached, so no call could overlap with the write.
                services.during = concurrent_write = None
            allowed.add(services.expected_catalog(caller, disabled=disabled, encoding=encoding))
            answers.append(await catalog_text(cache, services, caller, disabled=disabled, encoding=accepted))
            assert set(answers) <= allowed
            if concurrent_write:
                # Before the new version reaches the gateways, other callers still get their own view.
                for other in map(make_caller, [tenant_id] * len(CLIENTS), CLIENTS):
                    number_seen = (
                        await catalog_text(cache, services, other, disabled=disabled, encoding=accepted)
                    ).split("|")[3]
                    expected = {"".join(sorted(services.hidden.get((tenant_id, other.client_id), ())))}
                    expected |= before(services, tenant_id, other.client_id, concurrent_write)
                    assert number_seen in expected
                services.move(concurrent_write[1])
                services.move(tenant_id)

    asyncio.run(play())


def before(services: SimulatedServices, tenant_id: str, client_id: str, step: tuple[Any, ...]) -> set[str]:
    """The hidden packages of a client before a write."""
    if step[:3] != ("hide", tenant_id, client_id):
        return set()
    return {"".join(sorted(services.hidden[tenant_id, client_id] ^ {step[3]}))}


@each("client_id", ["", "c1"])
async def test_tenants_without_a_version_do_not_share_catalogs(client_id: str) -> None:
    services = SimulatedServices()
    cache = services.catalogs()
    texts = [await catalog_text(cache, services, make_caller(tenant_id, client_id)) for tenant_id in TENANTS * 2]
    assert [text.partition("|")[0] for text in texts] == [*TENANTS * 2]


async def test_concurrent_requests_for_a_catalog_share_one_call() -> None:
    services = SimulatedServices(hidden={("acme", "c1"): frozenset("A"), ("acme", "c2"): frozenset("A")})
    cache = services.catalogs()
    for _ in range(3):
        await asyncio.gather(*(catalog_text(cache, services, make_caller("acme", client)) for client in ("", "c3") * 5))
        await asyncio.gather(
            *(catalog_text(cache, services, make_caller("acme", client)) for client in ("c1", "c2") * 5)
        )
    assert services.calls == [("acme", 200)] * 3  # for the administrator, the ring of c3, and the other clients


async def test_an_unchanged_catalog_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    services = SimulatedServices()
    cache = services.catalogs()
    first = await catalog_text(cache, services, make_caller("acme"))
    services.move("acme")
    for _ in range(3):
        assert await catalog_text(cache, services, make_caller("acme")) == first
    assert services.calls == [("acme", 200), ("acme", 304)]


@pytest.mark.parametrize(
    ("services", "version", "query", "calls"),
    [
        ({"sized": False}, "", "", 1),
        ({"tagged": False}, "", "", 1),
        ({}, None, "", 0),
        *(({}, "", f"?{query}", 0) for query in ("include_disabled=maybe", "include_disabled=true&x=1", "x")),
    ],
    ids=["no length", "no ETag", "no Redis", "an invalid value", "another parameter", "an unknown parameter"],
)
async def test_a_catalog_that_cannot_be_cached_is_forwarded(
    services: dict[str, bool], version: str | None, query: str, calls: int
) -> None:
    simulated = SimulatedServices(**services)  # type: ignore[arg-type]  # fields of bool
    cache = simulated.catalogs()
    if version is None:
        assert await cache.find(request_for(), make_caller("acme"))
        simulated.calls.clear()
    request = make_mocked_request("POST", f"/x/get_packages{query}")
    request[TENANT_VERSION] = version
    for _ in range(3):
        assert await cache.find(request, make_caller("acme")) is None
    assert len(simulated.calls) == calls


@each(("accepted", "expected"), [("", "identity"), ("zstd, gzip;q=0.5", "zstd"), ("*", "gzip")])
async def test_the_catalog_has_an_encoding_that_the_caller_accepts(accepted: str, expected: str) -> None:
    services = SimulatedServices()
    text = await catalog_text(services.catalogs(), services, make_caller("acme"), encoding=accepted)
    assert text.endswith(expected)


async def test_a_catalog_larger_than_half_the_budget_is_forwarded() -> None:
    services = SimulatedServices(size=BUDGET // 2)
    cache = services.catalogs()
    for _ in range(3):
        assert await cache.find(request_for(), make_caller("acme")) is None
    assert len(services.calls) == 1
    services.size = 0
    services.move("acme")
    assert await cache.find(request_for(version=services.versions["acme"]), make_caller("acme"))


async def test_a_slow_catalog_does_not_delay_another_tenant() -> None:
    services = SimulatedServices(slow={"acme": asyncio.Event()})
    cache = services.catalogs()
    views = [request_for(disabled=disabled, encoding=coding) for disabled in (True, False) for coding in ("", *CODINGS)]
    stuck = [asyncio.create_task(cache.find(view, make_caller("acme"))) for view in views]
    for _ in range(5):
        await asyncio.sleep(0)

    assert await asyncio.wait_for(cache.find(request_for(), make_caller("other")), 60)

    services.slow["acme"].set()
    assert all(await asyncio.gather(*stuck))


async def test_catalogs_of_slow_readers_count_in_the_budget() -> None:
    """A catalog changes often while callers still receive the previous ones."""
    services = SimulatedServices(size=BUDGET // 5)
    cache = services.catalogs()

    async def read(tenant_id: str = "acme") -> Catalog | None:
        services.revisions[tenant_id] += 1
        services.move(tenant_id)
        return await cache.find(request_for(version=services.versions[tenant_id]), make_caller(tenant_id))

    slow = [await read() for _ in range(10)]
    assert [catalog is not None for catalog in slow] == [True] * 4 + [False] * 6
    slow[0] = None
    for tenant_id in ("other", "acme", "acme"):  # There is room for one more catalog; the cached one is evicted for it.
        assert await read(tenant_id)
    slow.clear()
    for _ in range(10):
        assert await read()


async def test_a_current_etag_gets_304() -> None:
    services = SimulatedServices()
    catalog = await services.catalogs().find(request_for(), make_caller("acme"))
    assert catalog
    for etag in (catalog.etag, f'"x", W/{catalog.etag}', "*"):
        answer = await catalog.send(request_for(etag=etag))
        assert isinstance(answer, web.Response)
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, None, catalog.etag)
