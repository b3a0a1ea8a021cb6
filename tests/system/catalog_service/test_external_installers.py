"""External installers in both deployments: only clients download them."""

import hashlib
import io
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, FormData, TCPConnector, web
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.support.api import Answer
from tests.support.servers.certificates import make_certificate
from tests.support.system.publishing import INSTALLER, add_package, package_id, publish
from tests.support.system.services import Api, Services
from tests.support.winget.client import WingetClient
from tests.support.winget.rules import AnswerRejected

HOST = "downloads.example.com"
CONTENT = b"an installer" * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class VendorServer(AbstractResolver):
    """The https server of the vendor. Only its resolver knows the address of its name."""

    port: int = 0
    content: bytes = CONTENT
    requests: list[str] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        return web.Response(body=self.content)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        assert host == HOST
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing: the resolver has no resources."""

    @property
    def installer(self) -> dict[str, str]:
        """The form fields of the external installer."""
        return {"installer_url": f"https://{HOST}:{self.port}/setup.exe?build=7", "installer_sha256": SHA256}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("vendor"), HOST)


@pytest.fixture
async def vendor(certificate: Path) -> AsyncIterator[VendorServer]:
    server = VendorServer()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
async def windows(certificate: Path, vendor: VendorServer) -> AsyncIterator[ClientSession]:
    """A client's machine, which trusts the vendor's certificate."""
    connector = TCPConnector(resolver=vendor, ssl=ssl.create_default_context(cafile=certificate))
    async with ClientSession(connector=connector) as session:
        yield session


async def try_adding(api: Api, name: str, **fields: str) -> Answer:
    return await api.call("POST", "add_package_version", name, data={**INSTALLER, "package_version": "1.0", **fields})


async def add(api: Api, name: str, **fields: str) -> str:
    answer = await try_adding(api, name, **fields)
    assert answer.status == 201, answer.body
    return str(answer.body["UID"])


def in_one_call(**fields: str) -> FormData:
    form = FormData({**INSTALLER, "package_version": "1.0", **fields}, default_to_multipart=True)
    assert form.is_multipart
    return form


async def test_only_clients_fetch_from_the_makers_server(
    either: Api, vendor: VendorServer, windows: ClientSession
) -> None:
    winget, name = WingetClient(windows, f"{either.base_url}/winget"), package_id()
    await add_package(either, name)
    uid = await add(either, name, **vendor.installer)
    for path in (("get_package_versions", name), ("get_specific_package_version", uid), ("get_version_details", uid)):
        assert (await either.call("GET", *path)).status == 200
    assert [hit.newest for hit in await winget.search(name)] == ["1.0"]
    assert vendor.requests == []

    assert await winget.install(name) == CONTENT

    assert vendor.requests == ["/setup.exe?build=7"]
    vendor.content = b"something else"
    with pytest.raises(AnswerRejected, match="another digest"):
        await winget.install(name)


async def test_a_version_lists_its_external_address(either: Api, vendor: VendorServer) -> None:
    name = package_id()
    await add_package(either, name)

    uid = await add(either, name, **vendor.installer)

    (listed,) = (await either.call("GET", "get_package_versions", name)).body
    body = (await either.call("GET", "get_version_details", uid)).body
    assert (listed["INSTALLER_URL"], listed["INSTALLER_SHA256"]) == (vendor.installer["installer_url"], SHA256)
    assert {"installer_url": body["installer_url"], "installer_sha256": body["installer_sha256"]} == vendor.installer


async def test_an_external_installer_is_added_by_a_multipart_form(either: Api, vendor: VendorServer) -> None:
    name = package_id()
    await add_package(either, name)

    answer = await either.call("POST", "add_package_version", name, data=in_one_call(**vendor.installer))

    assert answer.status == 201, answer.body
    body = (await either.call("GET", "get_specific_package_version", answer.body["UID"])).body
    assert body["INSTALLER_URL"] == vendor.installer["installer_url"]


async def test_a_form_with_a_file_and_an_address_is_rejected(tenant: Api, vendor: VendorServer) -> None:
    name = package_id()
    await add_package(tenant, name)
    form = in_one_call(**vendor.installer)
    form.add_field("file", io.BytesIO(CONTENT), filename="setup.exe")

    answer = await tenant.call("POST", "add_package_version", name, data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_request")
    assert (await tenant.call("GET", "get_package_versions", name)).body == []
    assert await stored(tenant) == 0


async def stored(api: Api) -> int:
    """The used and reserved bytes of a tenant."""
    body = (await api.call("GET", "server_information")).body
    return int(body["storage_used"]) + int(body["storage_reserved"])


async def test_an_external_installer_uses_no_storage(services: Services, vendor: VendorServer) -> None:
    api, name = await services.tenant(storage_quota=len(CONTENT)), package_id()
    await add_package(api, name)
    await publish(api, name, "1.0", content=CONTENT)
    uid = await add(api, name, **vendor.installer, package_version="2.0")
    assert await stored(api) == len(CONTENT)

    deleted = await api.call("DELETE", "delete_package_version", name, data={"versions_uids": uid})

    assert deleted.status == 200
    assert await stored(api) == len(CONTENT)
    assert [version["VERSION"] for version in (await api.call("GET", "get_package_versions", name)).body] == ["1.0"]


async def test_a_deleted_package_loses_its_external_installers(either: Api, vendor: VendorServer) -> None:
    name = package_id()
    await add_package(either, name)
    uid = await add(either, name, **vendor.installer)

    assert (await either.call("DELETE", "delete_package", name)).status == 200

    await add_package(either, name)
    assert (await either.call("GET", "get_package_versions", name)).body == []
    assert (await either.call("GET", "get_specific_package_version", uid)).status == 404


async def test_a_tenant_cannot_see_external_addresses_of_another(
    tenant: Api, other_tenant: Api, vendor: VendorServer
) -> None:
    name = package_id()
    await add_package(tenant, name)
    uid = await add(tenant, name, **vendor.installer)
    await add_package(other_tenant, name)

    for operation in ("get_specific_package_version", "get_version_details"):
        assert (await other_tenant.call("GET", operation, uid)).status == 404
    deleted = await other_tenant.call("DELETE", "delete_package_version", name, data={"versions_uids": uid})
    assert deleted.status == 404
    assert len((await tenant.call("GET", "get_package_versions", name)).body) == 1


async def test_the_audit_log_has_only_the_host_of_the_address(tenant: Api, vendor: VendorServer) -> None:
    name = package_id()
    await add_package(tenant, name)
    await add(tenant, name, **{**vendor.installer, "installer_url": f"https://{HOST}/s3cret/setup.exe?key=s3cret"})

    entries: list[dict[str, Any]] = (await tenant.call("GET", "get_audit_log")).body

    [entry] = [entry for entry in entries if entry["operation"] == "add_package_version"]
    assert f"{HOST}" in str(entry)
    assert SHA256 in str(entry)
    assert "s3cret" not in str(entries)


BAD_ADDRESSES = (
    "http://downloads.example.com/setup.exe",
    "file:///etc/passwd",
    "https://169.254.169.254/latest/meta-data",
    "https://127.0.0.1:8080/metrics",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://localhost/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://user:s3cret@downloads.example.com/",
    "https://downloads.example.com\\@127.0.0.1/",
    "https://downloads.example.com/\r\nHost: other",
    f"https://downloads.example.com/{'x' * 2048}",
)


async def test_each_form_rejects_forbidden_addresses(each: Api) -> None:
    name, wrong = package_id(), []
    await add_package(each, name)
    for address in BAD_ADDRESSES:
        fields = {"installer_url": address, "installer_sha256": SHA256}
        for data in ({**INSTALLER, "package_version": "1.0", **fields}, in_one_call(**fields)):
            answer = await each.call("POST", "add_package_version", name, data=data)
            refused = (answer.status, answer.body["code"]) == (400, "invalid_field")
            explained = answer.body["detail"].startswith("installer_url: ") and "s3cret" not in str(answer.body)
            if not (refused and explained):
                wrong.append((address[:60], type(data).__name__, answer.status, answer.body))
    assert wrong == []
    assert (await each.call("GET", "get_package_versions", name)).body == []
