"""`pkgrepo up --tls`: clients that trust the offered CA certificate alone."""

import asyncio
import hashlib
import os
import re
import ssl
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientConnectorCertificateError, ClientError, ClientSession, TCPConnector
from yarl import URL

from common.auth.internal_tokens import Deployment
from gateway.forwarding.proxy import SPLICE_THRESHOLD
from tests.support.processes.pkgrepo_command import RunningPkgrepo, pkgrepo, run_pkgrepo
from tests.support.system.publishing import add_package, package_id, publish, version_of
from tests.support.system.services import Api
from tests.support.winget.client import WingetClient
from tests.support.winget.crowd import search_at_once


@dataclass(frozen=True)
class Trial:
    """A running `pkgrepo up --tls`, and an administrator that trusts only the CA certificate which it offers."""

    service: RunningPkgrepo
    ca_certificate: bytes
    api: Api

    @property
    def origin(self) -> str:
        return "{0.scheme}://{0.netloc}".format(urlsplit(self.service.base_url))


@pytest.fixture(scope="module")
async def trial(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trial]:
    folder = tmp_path_factory.mktemp("tls")
    async with run_pkgrepo(folder, "--tls", "--demo", "--host", "0.0.0.0", "--name", "localhost") as service:
        base = service.base_url
        async with (
            ClientSession(connector=TCPConnector(ssl=False)) as untrusting,
            untrusting.get(URL(base).with_path("/ca.crt")) as answer,
        ):
            certificate = await answer.read()
            assert answer.content_type == "application/x-x509-ca-cert"
        trust = ssl.create_default_context(cadata=certificate.decode("ascii"))
        async with ClientSession(connector=TCPConnector(ssl=trust)) as session:
            api = Api(session, base, "demo", Deployment.MULTI)
            password = (folder / "admin-password").read_text()
            yield Trial(service, certificate, await api.signed_in(password=password))


async def test_winget_searches_and_downloads_over_https(trial: Trial) -> None:
    winget = WingetClient(trial.api.session, f"{trial.service.base_url}/winget", https_only=True)
    assert [hit.package_id for hit in await winget.search("Hello")] == ["Example.Hello"]
    assert (await winget.install("Example.Hello")).startswith(b"PK")


async def test_three_hundred_machines_search_at_once_by_tls_1_2(trial: Trial) -> None:
    trust = ssl.create_default_context(cadata=trial.ca_certificate.decode("ascii"))
    assert await search_at_once(f"{trial.service.base_url}/winget", trust, machines=300) == {200: 300}


async def test_a_long_download_is_encrypted_and_complete(trial: Trial) -> None:
    name, content = package_id(), os.urandom(SPLICE_THRESHOLD * 3)
    await add_package(trial.api, name)
    published = await publish(trial.api, name, content=content)
    address = (await version_of(trial.api, published))["INSTALLER_URL"]
    async with trial.api.session.get(address) as answer:
        assert (answer.url.scheme, hashlib.sha256(await answer.read()).hexdigest()) == ("https", published.sha256)


async def test_a_client_without_the_ca_certificate_is_refused(trial: Trial) -> None:
    async with ClientSession() as session:
        with pytest.raises(ClientConnectorCertificateError):
            await session.get(trial.service.base_url)


async def test_the_port_answers_no_plain_http(trial: Trial) -> None:
    async with ClientSession() as session:
        with pytest.raises(ClientError):
            await session.get(URL(trial.service.base_url).with_scheme("http").with_path("/ca.crt"))


async def test_powershell_lines_name_the_ca_certificate_and_the_source(trial: Trial) -> None:
    importing, adding = (line for line in trial.service.output.splitlines() if re.match(r"curl\.exe|winget", line))
    digest = hashlib.sha256(trial.ca_certificate).hexdigest().upper()
    assert importing.startswith(
        f"curl.exe -sko ca.crt {trial.origin}/ca.crt; if ((Get-FileHash ca.crt).Hash -eq '{digest}')"
    )
    assert "Import-Certificate -FilePath ca.crt -CertStoreLocation Cert:\\LocalMachine\\Root" in importing
    assert adding == (
        f"winget source add --name demo --arg {trial.service.base_url}/winget --type Microsoft.Rest "
        "--trust-level trusted"
    )


async def test_the_curl_lines_work_as_printed_with_tls(trial: Trial) -> None:
    shell = await asyncio.create_subprocess_exec("bash", "-ec", trial.service.curl_lines, stdout=PIPE, stderr=PIPE)
    output, _ = await shell.communicate()
    assert shell.returncode == 0
    assert b'"package_id":"Example.Hello"' in output


async def test_cookies_are_secure_and_browsers_may_return_to_http(trial: Trial) -> None:
    password = (trial.service.folder / "admin-password").read_text()
    form = {"username": "admin", "password": password}
    answer = await trial.api.anonymous().call("POST", "sign_in", data=form)
    assert answer.status == 303
    assert answer.headers["Set-Cookie"].startswith("__Host-")
    assert "Secure" in answer.headers["Set-Cookie"]
    assert "Strict-Transport-Security" not in answer.headers


async def test_status_trusts_the_certificate(trial: Trial) -> None:
    status, output = await pkgrepo("status", *trial.service.data)
    assert (status, "https://127.0.0.1:" in output, output.count(" ready ")) == (0, True, 5), output
