"""The cache of a site, with the real nginx, between the machines of a site and the package source."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiohttp import ClientConnectorError, ClientSession, web
from yarl import URL

from tests.support.metrics import fetch_metrics
from tests.support.servers.http_server import serve
from tests.support.servers.ports import free_port
from tests.support.servers.site_cache import access_log, run_site_cache
from tests.support.system.publishing import Published, add_package, package_id, publish, version_of
from tests.support.system.releases import set_policy
from tests.support.system.services import Api, Services

SLICE = 8 << 20  # bytes
SIZE = 2 * SLICE + 1000  # bytes of an installer
MACHINES = 50
HOUR = 3600  # seconds


@dataclass(frozen=True)
class Site:
    """A tenant whose callers here are at a site, and the place of the site's cache."""

    api: Api
    services: Services
    folder: Path
    port: int

    @asynccontextmanager
    async def cache(self, *, ahead: int = 0) -> AsyncIterator[None]:
        """Run nginx, with a clock `ahead` seconds fast."""
        async with run_site_cache(self.folder, self.port, str(URL(self.api.base_url).origin()), ahead=ahead):
            yield

    async def publish(self, size: int = SIZE) -> Published:
        name = package_id()
        await add_package(self.api, name)
        return await publish(self.api, name, content=os.urandom(size))

    async def address(self, published: Published) -> URL:
        return URL((await version_of(self.api, published))["INSTALLER_URL"], encoded=True)

    async def get(self, address: URL, **headers: str) -> tuple[int, bytes]:
        async with self.api.session.get(address, headers=headers) as response:
            return response.status, await response.read()

    async def digest(self, address: URL) -> str:
        """Download as one machine. Returns the SHA-256."""
        digest = hashlib.sha256()
        async with self.api.session.get(address) as response:
            assert response.status == 200
            async for block in response.content.iter_any():
                digest.update(block)
        return digest.hexdigest()

    async def sent(self) -> float:
        """The bytes of installers that the package source has sent."""
        metrics = await fetch_metrics(self.api.session, self.services.management["upload_service"])
        return metrics.value("pkgrepo_download_bytes_total")

    async def set_sites(self, *networks: str) -> None:
        row = {"name": "Here", "networks": networks, "downloads": f"http://127.0.0.1:{self.port}"}
        answer = await self.api.call("PATCH", "edit_settings", data={"sites": json.dumps([row] if networks else [])})
        assert answer.status == 200, answer.body


@asynccontextmanager
async def at_site(api: Api, services: Services) -> AsyncIterator[Site]:
    """Put the callers of a tenant at a site."""
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        site = Site(api, services, Path(folder), free_port())
        await site.set_sites("127.0.0.0/8")
        yield site
        await site.set_sites()


@pytest.fixture
async def site(services: Services) -> AsyncIterator[Site]:
    async with at_site(await services.tenant(), services) as site:
        yield site


async def test_fifty_machines_load_an_installer_that_the_source_sends_once(site: Site) -> None:
    published = await site.publish()
    before = await site.sent()
    async with site.cache():
        address = await site.address(published)
        digests = await asyncio.gather(*(site.digest(address) for _ in range(MACHINES)))

    assert address.port == site.port
    assert set(digests) == {published.sha256}
    # The rest are the headers of three responses.
    assert SIZE <= await site.sent() - before < SIZE + 10_000
    log = access_log(site.folder).read_text()
    assert log.count(f"GET {address.raw_path} 200") == MACHINES
    assert address.query["signature"] not in log + (site.folder / "server.log").read_text()


async def test_a_range_needs_only_its_slices(site: Site) -> None:
    published = await site.publish()
    before = await site.sent()
    async with site.cache():
        address = await site.address(published)
        for _ in range(2):
            across = await site.get(address, Range=f"bytes={2 * SLICE - 5}-{2 * SLICE + 4}")
            assert across == (206, published.content[2 * SLICE - 5 : 2 * SLICE + 5])
        assert await site.sent() - before < SLICE + 10_000
        assert await site.get(address, Range="bytes=-3") == (206, published.content[-3:])
        assert (await site.get(address, Range=f"bytes={SIZE}-"))[0] == 416


async def test_a_held_version_stops_within_the_hour(site: Site) -> None:
    await set_policy(site.api, "pilot,everyone")
    published = await site.publish(1000)
    address = await site.address(published)
    async with site.cache():
        assert await site.get(address) == (200, published.content)
        assert (await site.api.call("POST", "hold_version", published.uid, data={"reason": "It fails."})).status == 200
        assert (await site.get(address))[0] == 200
    async with site.cache(ahead=HOUR + 1):
        status, body = await site.get(address)
        assert (status, json.loads(body)["code"]) == (404, "installer_withheld")
        assert (await site.api.call("POST", "resume_version", published.uid)).status == 200
        before = await site.sent()
        assert await site.get(address) == (200, published.content)
        assert await site.sent() - before < len(published.content)


async def test_machines_load_from_the_source_when_the_cache_has_stopped_and_the_site_is_removed(site: Site) -> None:
    published = await site.publish(1000)
    at_site = await site.address(published)
    with pytest.raises(ClientConnectorError):
        await site.get(at_site)
    source = URL(site.api.base_url).origin()
    assert await site.get(source.join(at_site.relative())) == (200, published.content)

    await site.set_sites()

    address = await site.address(published)
    assert address.origin() == source
    assert await site.get(address) == (200, published.content)


async def test_a_cached_installer_needs_its_signed_address(site: Site) -> None:
    published = await site.publish(1000)
    async with site.cache():
        address = await site.address(published)
        assert await site.get(address) == (200, published.content)
        altered = address.with_query({**address.query, "signature": "0" * 64})
        assert (await site.get(altered))[0] == 403
        assert (await site.get(address.with_query("")))[0] == 403


async def test_the_addresses_of_each_deployment_pass_the_cache(either: Api, services: Services) -> None:
    async with at_site(either, services) as site, site.cache():
        published = await site.publish(1000)
        address = await site.address(published)
        assert await site.get(address) == (200, published.content)

    assert address.raw_path.startswith(f"{either.path}/download/")


async def test_the_source_gets_no_token_of_a_machine(tmp_path: Path) -> None:
    received: list[set[str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        received.append(set(request.headers))
        return web.Response(body=b"x")

    machine = {"Authorization": "Bearer secret", "Cookie": "a=b", "Token": "secret", "X-Forwarded-For": "10.0.0.1"}
    async with (
        serve(answer) as source,
        run_site_cache(tmp_path, free_port(), f"http://127.0.0.1:{source}") as address,
        ClientSession() as session,
        session.get(f"{address}/acme/download/a.exe/b.exe", headers=machine) as response,
    ):
        assert response.status == 200

    assert received == [{"Host", "Connection", "Range"}]


async def test_no_log_has_a_signature_when_the_source_does_not_answer(tmp_path: Path) -> None:
    port, nothing = free_port(), free_port()
    async with (
        run_site_cache(tmp_path, port, f"http://127.0.0.1:{nothing}") as address,
        ClientSession() as session,
        session.get(f"{address}/acme/download/a.exe/b.exe?signature=secret") as response,
    ):
        assert response.status == 502

    assert "a.exe/b.exe 502" in access_log(tmp_path).read_text()
    assert "secret" not in access_log(tmp_path).read_text() + (tmp_path / "server.log").read_text()


async def test_the_cache_answers_nothing_but_downloads(site: Site) -> None:
    async with site.cache():
        origin = URL(f"http://127.0.0.1:{site.port}")
        for path in ("/", f"/{site.api.tenant_id}/get_packages", f"/{site.api.tenant_id}/winget/information"):
            assert (await site.get(origin.join(URL(path))))[0] == 404
