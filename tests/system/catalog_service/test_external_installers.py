"""External installers: only clients download them."""

import hashlib
import io
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession, FormData, TCPConnector, web
from aiohttp.abc import AbstractResolver, ResolveResult

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


@pytest.fixture
async def name(tenant: Api) -> str:
    """A package of the tenant."""
    name = package_id()
    await add_package(tenant, name)
    return name


def in_one_call(**fields: str) -> FormData:
    return FormData({**INSTALLER, "package_version": "1.0", **fields}, default_to_multipart=True)


async def add(api: Api, name: str, data: FormData) -> str:
    answer = await api.call("POST", "add_package_version", name, data=data)
    assert answer.status == 201, answer.body
    return str(answer.body["UID"])


async def stored(api: Api) -> int:
    """The used and reserved bytes of a tenant."""
    body = (await api.call("GET", "server_information")).body
    return int(body["storage_used"]) + int(body["storage_reserved"])


@pytest.mark.parametrize("multipart", [True, False])
async def test_only_clients_fetch_from_the_makers_server(
    tenant: Api, name: str, vendor: VendorServer, windows: ClientSession, multipart: bool
) -> None:
    winget = WingetClient(windows, f"{tenant.base_url}/winget")
    form = {**INSTALLER, "package_version": "1.0", **vendor.installer}
    uid = await add(tenant, name, FormData(form, default_to_multipart=multipart))
    (listed,) = (await tenant.call("GET", "get_package_versions", name)).body
    assert (listed["INSTALLER_URL"], listed["INSTALLER_SHA256"]) == (vendor.installer["installer_url"], SHA256)
    for operation in ("get_specific_package_version", "get_version_details"):
        assert (await tenant.call("GET", operation, uid)).status == 200
    assert [hit.newest for hit in await winget.search(name)] == ["1.0"]
    assert vendor.requests == []

    assert await winget.install(name) == CONTENT

    assert vendor.requests == ["/setup.exe?build=7"]
    vendor.content = b"something else"
    with pytest.raises(AnswerRejected, match="another digest"):
        await winget.install(name)


async def test_an_external_installer_uses_no_storage(services: Services, vendor: VendorServer) -> None:
    api, name = await services.tenant(storage_quota=len(CONTENT)), package_id()
    await add_package(api, name)
    await publish(api, name, "2.0", content=CONTENT)
    uid = await add(api, name, in_one_call(**vendor.installer))
    assert await stored(api) == len(CONTENT)

    deleted = await api.call("DELETE", "delete_package_version", name, data={"versions_uids": uid})

    assert deleted.status == 200
    assert await stored(api) == len(CONTENT)
    assert [version["VERSION"] for version in (await api.call("GET", "get_package_versions", name)).body] == ["2.0"]


async def test_a_form_with_a_file_and_an_address_is_rejected(tenant: Api, name: str, vendor: VendorServer) -> None:
    form = in_one_call(**vendor.installer)
    form.add_field("file", io.BytesIO(CONTENT), filename="setup.exe")

    answer = await tenant.call("POST", "add_package_version", name, data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_request")
    assert (await tenant.call("GET", "get_package_versions", name)).body == []
    assert await stored(tenant) == 0


@pytest.mark.parametrize("multipart", [True, False])
@pytest.mark.parametrize("address", ["https://169.254.169.254/latest", f"https://user:s3cret@{HOST}/"])
async def test_each_form_rejects_forbidden_addresses(tenant: Api, name: str, address: str, multipart: bool) -> None:
    fields = {**INSTALLER, "package_version": "1.0", "installer_url": address, "installer_sha256": SHA256}
    form = FormData(fields, default_to_multipart=multipart)

    answer = await tenant.call("POST", "add_package_version", name, data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith("installer_url: ")
    assert "s3cret" not in str(answer.body)
    assert (await tenant.call("GET", "get_package_versions", name)).body == []
