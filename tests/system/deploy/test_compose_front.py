"""The services behind one TLS address, while containers are replaced. Needs a container engine."""

import asyncio
import hashlib
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from uuid import uuid4

import pytest
from aiohttp import ClientError
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_der_x509_certificate
from docker.models.containers import Container
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from yarl import URL

from deploy.cluster.rights import MONGODB
from deploy.cluster.secrets import ClusterSecrets
from tests.support.deployment.compose import SERVICES, START_TIMEOUT, STORES, ComposeProject, run_compose_with_tls
from tests.support.faults.callers import CountingApi, run_callers
from tests.support.samples.stalled_chunk import BOUNDARY, HEAD, TAIL
from tests.support.system.publishing import send_chunk
from tests.support.system.services import Api
from tests.support.wait import until
from tests.support.winget.crowd import search_at_once

SCALE = dict.fromkeys(SERVICES, 2) | {"upload_service": 3}
CHUNK = 1 << 20  # bytes
PIECE = 1 << 16  # bytes of a slow body
PAUSE = 0.2  # seconds between two parts of the body


@pytest.fixture(scope="module")
async def project() -> AsyncIterator[ComposeProject]:
    async with run_compose_with_tls(**SCALE) as running:
        yield running


@pytest.fixture
async def front(project: ComposeProject) -> AsyncIterator[Api]:
    async with project.front() as api:
        yield api


async def test_winget_is_served_by_tls_1_2_with_a_p256_key(project: ComposeProject, front: Api) -> None:
    trust = await project.trust()
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    address = URL(f"{front.base_url}/winget/information")
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=trust)
    writer.write(f"GET {address.raw_path} HTTP/1.1\r\nHost: {address.authority}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    connection = writer.get_extra_info("ssl_object")
    writer.close()
    assert (answer.partition(b"\r\n")[0], connection.version()) == (b"HTTP/1.1 200 OK", "TLSv1.2")
    key = load_der_x509_certificate(connection.getpeercert(binary_form=True)).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


async def test_three_hundred_machines_behind_one_address_are_served(project: ComposeProject, front: Api) -> None:
    statuses = await search_at_once(f"{front.base_url}/winget", await project.trust(), machines=300)
    assert statuses == {204: 300}


async def test_replacing_every_store_password_fails_no_request(project: ComposeProject, front: Api) -> None:
    old = ClusterSecrets(project.secrets).credentials("mongodb")
    async with run_callers(front) as counting:
        await project.renew_passwords()
        assert counting.failures == {}, "while the stores took the new users"
        for service in SERVICES:
            for replica in project.containers(service):
                await _restart(project, replica)
            assert counting.failures == {}, f"while {service} was restarted"
        await project.renew_passwords("--finish")
        requests = counting.requests.total()
        await until(lambda: _more(counting, requests))
        assert counting.failures == {}, "while the stores dropped the old users"
    assert len(old) == len(MONGODB)
    for old_credential in old:
        async with AsyncMongoClient[dict[str, object]](project.store_url("mongodb", str(old_credential))) as client:
            with pytest.raises(OperationFailure, match="Authentication failed"):
                await client["auth"].list_collection_names()


async def _more(counting: CountingApi, requests: int) -> bool:
    """Whether callers have sent 50 more requests."""
    return counting.requests.total() > requests + 50


async def test_an_upload_continues_after_its_gateway_is_replaced(project: ComposeProject, front: Api) -> None:
    file_id, content = uuid4().hex, os.urandom(64 * CHUNK)
    assert (await send_chunk(front, file_id, content, 0, CHUNK)).status == 200

    async def slowly() -> AsyncIterator[bytes]:
        yield HEAD
        for start in range(CHUNK, len(content), PIECE):
            yield content[start : start + PIECE]
            await asyncio.sleep(PAUSE)
        yield TAIL

    headers = {
        "X-File-ID": file_id,
        "Content-Range": f"bytes {CHUNK}-{len(content) - 1}/{len(content)}",
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
    }
    sending = asyncio.ensure_future(front.call("POST", "upload_package_version", data=slowly(), headers=headers))
    for replica in project.containers("gateway"):
        await _restart(project, replica)
    with suppress(ClientError):
        assert (await sending).status >= 500
    where = await front.call("GET", "upload_package_version", headers={"X-File-ID": file_id})
    assert where.body["received"] == CHUNK
    answer = await send_chunk(front, file_id, content, CHUNK, len(content))
    assert (answer.status, answer.body["complete"]) == (200, True)
    assert answer.body["sha256"] == hashlib.sha256(content).hexdigest()


async def test_services_started_before_their_stores_become_ready(project: ComposeProject, front: Api) -> None:
    services, stores = project.containers(*SERVICES), project.containers(*STORES)

    async def front_answers() -> bool:
        return (await front.call("GET", "test")).status == 200

    await _all(Container.stop, [*services, *stores], timeout=30)
    await _all(Container.start, services)
    for container in services:
        await until(partial(_is_answering, project, container), timeout=START_TIMEOUT)
    await _all(Container.start, stores)
    await project.ready(*services)
    for container in services:
        await asyncio.to_thread(container.reload)
        assert container.attrs["RestartCount"] == 0
    await until(front_answers)


async def _restart(project: ComposeProject, replica: Container) -> None:
    await asyncio.to_thread(replica.restart, timeout=30)
    await project.ready(replica)


async def _all(act: object, containers: list[Container], **options: object) -> None:
    await asyncio.gather(*(asyncio.to_thread(act, container, **options) for container in containers))  # type: ignore[arg-type]


async def _is_answering(project: ComposeProject, container: Container) -> bool:
    return bool(await project.readiness(container))
